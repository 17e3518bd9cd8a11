#include "jit/leir.hpp"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/codes.hpp"
#include "jit/emit.hpp"
#include "jit/target_machine.hpp"

namespace cleave::jit {

namespace {

using namespace leir;
using llvm::BasicBlock;
using llvm::Value;

constexpr size_t kMaxLoops = 64;

class LeirEmitter {
 public:
  LeirEmitter(const Program& p, const LeirOptions& o, llvm::LLVMContext& c)
      : p_(p), s_(p.syntax()), o_(o), c_(c), b_(c), module_(std::make_unique<llvm::Module>("leir", c)) {}

  Result<std::unique_ptr<llvm::Module>> run() {
    const size_t n = p_.variables().size();
    llvm::Type* pointer = b_.getPtrTy();
    // The body has a parameter for each buffer, so that none is thought to overlap another.
    std::vector<llvm::Type*> parameters(n + 1, pointer);
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), parameters, false);
    body_ = llvm::Function::Create(type, llvm::Function::InternalLinkage, "body", *module_);
    body_->addFnAttr(llvm::Attribute::NoInline);
    for (unsigned i = 0; i < n; ++i) {
      body_->addParamAttr(i, llvm::Attribute::NoAlias);
      const Variable& v = p_.variables()[i];
      if (v.known() && v.role != Role::output) body_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    entry_ = block("entry");
    index_.assign(s_.loops.size(), nullptr);
    auto* start = block("start");
    b_.SetInsertPoint(start);
    for (uint32_t i = 0; i < s_.items.size(); i = s_.items[i].end)
      if (Diagnostics bad = nest(i); !bad.empty()) return bad;
    b_.CreateRet(b_.getInt32(0));
    llvm::IRBuilder<>(entry_).CreateBr(start);

    auto* outer = llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer}, false);
    auto* f = llvm::Function::Create(outer, llvm::Function::ExternalLinkage, kernel_symbol("leir_run"), *module_);
    b_.SetInsertPoint(BasicBlock::Create(c_, "entry", f));
    std::vector<Value*> arguments;
    for (size_t i = 0; i < n; ++i)
      arguments.push_back(b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, f->getArg(0), i)));
    arguments.push_back(f->getArg(1));
    b_.CreateRet(b_.CreateCall(body_, arguments));
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    CHECK(!llvm::verifyModule(*module_, &stream), "{}", problem);
    return std::move(module_);
  }

 private:
  BasicBlock* block(const char* name) { return BasicBlock::Create(c_, name, body_); }
  Value* slot(llvm::Type* type) { return llvm::IRBuilder<>(entry_).CreateAlloca(type); }
  llvm::Type* type(Class c) {
    switch (c) {
      case Class::boolean: return b_.getInt1Ty();
      case Class::integer:
      case Class::unsigned_integer: return b_.getInt64Ty();
      case Class::f32: return b_.getFloatTy();
      case Class::f64: return b_.getDoubleTy();
    }
    return nullptr;
  }
  llvm::Type* storage(Type t) {
    switch (t) {
      case Type::f64: return b_.getDoubleTy();
      case Type::f32: return b_.getFloatTy();
      case Type::f16: return b_.getHalfTy();
      case Type::bf16: return b_.getInt16Ty();
      default: return b_.getIntNTy(static_cast<unsigned>(8 * byte_size(t)));
    }
  }
  Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  static Diagnostic refuse(const std::string& why) { return diagnose(Code::leir_unsupported, "machine code", why); }

  struct OpenLoop {
    uint32_t loop;
    BasicBlock *latch, *exit;
  };

  Diagnostics nest(uint32_t root) {
    struct Open {
      uint32_t end, loops;
    };
    std::vector<Open> open;
    for (uint32_t i = root; i < s_.items[root].end; ++i) {
      const Item& item = s_.items[i];
      if (item.nest()) {
        const uint32_t start = starts_before(i);
        for (uint32_t l = item.first_loop; l < item.first_loop + item.loops; ++l) {
          if (l == start)
            if (Diagnostics bad = first_values(i, l); !bad.empty()) return bad;
          if (Diagnostics bad = begin_loop(l); !bad.empty()) return bad;
          if (open_.size() > kMaxLoops)
            return {
                refuse(fmt::format("the loop `{}` is nested deeper than {}", s_.text(s_.loops[l].index), kMaxLoops))};
        }
        open.push_back({item.end, item.loops});
      } else if (Diagnostics bad = equation(i); !bad.empty()) {
        return bad;
      }
      while (!open.empty() && open.back().end == i + 1) {
        for (uint32_t l = 0; l < open.back().loops; ++l) end_loop();
        open.pop_back();
      }
    }
    return {};
  }

  Diagnostics begin_loop(uint32_t l) {
    Value* n = nullptr;
    if (const auto e = p_.extent(l)) {
      n = i64(*e);
    } else {
      auto t = type_extent(p_, l);
      if (!t) return t.errors();
      begin(*t, kNone);
      n = value(t->root);
    }
    Value* at = slot(b_.getInt64Ty());
    b_.CreateStore(i64(0), at);
    auto *head = block("head"), *inside = block("body"), *latch = block("latch"), *exit = block("exit");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    Value* i = b_.CreateLoad(b_.getInt64Ty(), at);
    b_.CreateCondBr(b_.CreateICmpSLT(i, n), inside, exit);
    b_.SetInsertPoint(latch);
    Value* next = b_.CreateNSWAdd(b_.CreateLoad(b_.getInt64Ty(), at), i64(1));
    b_.CreateStore(next, at);
    b_.CreateBr(head);
    b_.SetInsertPoint(inside);
    index_[l] = at;
    open_.push_back({l, latch, exit});
    return {};
  }
  void end_loop() {
    const OpenLoop o = open_.back();
    open_.pop_back();
    b_.CreateBr(o.latch);
    b_.SetInsertPoint(o.exit);
    index_[o.loop] = nullptr;
  }

  // As in the C emitter: when the accumulator of a nest's only equation gets all its first values before a loop.
  uint32_t starts_before(uint32_t i) const {
    const Item& item = s_.items[i];
    if (item.end != i + 2 || s_.items[i + 1].nest()) return kNone;
    const EquationInfo& q = p_.equations()[p_.equation_of(i + 1)];
    if (!q.initialises || q.reductions.empty()) return kNone;
    const uint32_t last = item.first_loop + item.loops;
    uint32_t first = kNone;
    for (uint32_t l : q.reductions) {
      if (l < item.first_loop || l >= last) return kNone;
      first = std::min(first, l);
    }
    for (uint32_t l = first; l < last; ++l) {
      if (!p_.extent(l)) return kNone;
      bool used = std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end();
      for (sym::Expr s : p_.accesses()[q.first_access].subscripts) used = used || p_.pool().mentions(s, p_.symbol(l));
      if (!used) return kNone;
    }
    return first;
  }

  Diagnostics first_values(uint32_t i, uint32_t from) {
    const Item& item = s_.items[i];
    const EquationInfo& q = p_.equations()[p_.equation_of(i + 1)];
    uint32_t loops = 0;
    for (uint32_t l = from; l < item.first_loop + item.loops; ++l) {
      if (std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end()) continue;
      if (Diagnostics bad = begin_loop(l); !bad.empty()) return bad;
      ++loops;
    }
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, p_.equation_of(i + 1)));
    begin(t.code, i + 1);
    const Variable& v = p_.variables()[q.target];
    const Class c = class_of_values(v.type);
    store(q.target, values(t.code.subscripts),
          leir::is_real(c) ? llvm::ConstantFP::get(type(c), t.identity)
                           : llvm::ConstantInt::get(type(c), static_cast<uint64_t>(t.identity_integer)),
          c);
    for (uint32_t l = 0; l < loops; ++l) end_loop();
    begun_.insert(i + 1);
    return {};
  }

  void begin(const Typed& code, uint32_t item) {
    code_ = &code;
    item_ = item;
    value_.assign(code.nodes.size(), nullptr);
    accumulator_ = kNone;
  }
  std::vector<Value*> values(std::span<const NodeId> nodes) {
    std::vector<Value*> out;
    for (NodeId n : nodes) out.push_back(value(n));
    return out;
  }

  Diagnostics equation(uint32_t i) {
    const uint32_t number = p_.equation_of(i);
    const EquationInfo& q = p_.equations()[number];
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, number));
    begin(t.code, i);
    typed_ = &t;
    accumulator_ = begun_.contains(i) ? kNone : t.accumulator;
    llvm::FastMathFlags flags;
    if (!o_.strict) {
      flags.setAllowReassoc();
      flags.setAllowContract();
      flags.setNoSignedZeros();
    }
    b_.setFastMathFlags(flags);
    const std::vector<Value*> subscripts = values(t.code.subscripts);
    Value* v = value(t.code.root);
    check(q.first_access, subscripts);
    store(q.target, subscripts, v, t.code.nodes[t.code.root].cls);
    b_.clearFastMathFlags();
    typed_ = nullptr;
    return {};
  }

  // ---- elements ---------------------------------------------------------------------------------------------------

  void fail_if(Value* condition, uint32_t access) {
    auto *bad = block("bad"), *good = block("good");
    b_.CreateCondBr(condition, bad, good);
    b_.SetInsertPoint(bad);
    Value* at = body_->getArg(static_cast<unsigned>(p_.variables().size()));
    for (size_t k = 0; k < open_.size(); ++k)
      b_.CreateStore(b_.CreateLoad(b_.getInt64Ty(), index_[open_[k].loop]),
                     b_.CreateConstGEP1_64(b_.getInt64Ty(), at, k));
    b_.CreateRet(b_.getInt32(access + 1));
    b_.SetInsertPoint(good);
  }
  void check(uint32_t access, const std::vector<Value*>& subscripts) {
    const Access& a = p_.accesses()[access];
    if (a.bounds == Proof::yes) return;
    Value* outside = b_.getFalse();
    for (size_t d = 0; d < subscripts.size(); ++d)
      outside = b_.CreateOr(outside, b_.CreateICmpUGE(subscripts[d], i64(p_.variables()[a.variable].shape[d])));
    fail_if(outside, access);
  }
  Value* address(uint32_t variable, const std::vector<Value*>& subscripts) {
    const Variable& v = p_.variables()[variable];
    Value* flat = i64(0);
    for (size_t d = 0; d < subscripts.size(); ++d)
      flat = b_.CreateNSWAdd(b_.CreateNSWMul(flat, i64(v.shape[d])), subscripts[d]);
    return b_.CreateInBoundsGEP(storage(v.type), body_->getArg(variable), flat);
  }
  Value* load(uint32_t variable, const std::vector<Value*>& subscripts) {
    const Type t = p_.variables()[variable].type;
    Value* x = b_.CreateLoad(storage(t), address(variable, subscripts));
    switch (t) {
      case Type::f64:
      case Type::f32:
      case Type::i64:
      case Type::u64: return x;
      case Type::f16: return b_.CreateFPExt(x, b_.getFloatTy());
      case Type::bf16: return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(x, b_.getInt32Ty()), 16), b_.getFloatTy());
      case Type::boolean: return b_.CreateICmpNE(x, b_.getInt8(0));
      default:
        return class_of(t) == TypeClass::signed_integer ? b_.CreateSExt(x, b_.getInt64Ty())
                                                        : b_.CreateZExt(x, b_.getInt64Ty());
    }
  }
  Value* to_integer(Value* x, Type t) {
    const bool is_unsigned = class_of(t) == TypeClass::unsigned_integer;
    llvm::Type* to = b_.getIntNTy(static_cast<unsigned>(8 * byte_size(t)));
    return b_.CreateIntrinsic(is_unsigned ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat,
                              {to, x->getType()}, {x});
  }
  void store(uint32_t variable, const std::vector<Value*>& subscripts, Value* x, Class c) {
    const Type t = p_.variables()[variable].type;
    if (leir::is_real(t)) {
      switch (t) {
        case Type::f64:
          if (c == Class::f32) x = b_.CreateFPExt(x, b_.getDoubleTy());
          break;
        case Type::f32:
          if (c == Class::f64) x = b_.CreateFPTrunc(x, b_.getFloatTy());
          break;
        case Type::f16: x = b_.CreateFPTrunc(x, b_.getHalfTy()); break;
        default: x = bf16_bits(x, c);
      }
    } else if (t == Type::boolean) {
      Value* nonzero = c == Class::boolean ? x
                       : leir::is_real(c)  ? b_.CreateFCmpUNE(x, llvm::ConstantFP::get(x->getType(), 0.0))
                                           : b_.CreateICmpNE(x, i64(0));
      x = b_.CreateZExt(nonzero, b_.getInt8Ty());
    } else if (leir::is_real(c)) {
      x = to_integer(x, t);
    } else {
      if (c == Class::boolean) x = b_.CreateZExt(x, b_.getInt64Ty());
      x = b_.CreateTrunc(x, storage(t));
    }
    b_.CreateStore(x, address(variable, subscripts));
  }
  // To nearest even; from double through f32 rounded to odd, so that it is rounded once.
  Value* bf16_bits(Value* x, Class c) {
    llvm::Type* i32 = b_.getInt32Ty();
    Value* bits = nullptr;
    if (c == Class::f64) {
      Value* f = b_.CreateFPTrunc(x, b_.getFloatTy());
      Value* back = b_.CreateFPExt(f, b_.getDoubleTy());
      bits = b_.CreateBitCast(f, i32);
      Value* away = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                     b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x));
      Value* odd = b_.CreateOr(b_.CreateSub(bits, b_.CreateZExt(away, i32)), b_.getInt32(1));
      Value* finite = b_.CreateFCmpOLE(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                       llvm::ConstantFP::get(b_.getDoubleTy(), 3.4e38));
      bits = b_.CreateSelect(b_.CreateAnd(finite, b_.CreateFCmpONE(back, x)), odd, bits);
    } else {
      bits = b_.CreateBitCast(x, i32);
    }
    Value* lsb = b_.CreateAnd(b_.CreateLShr(bits, 16), 1);
    Value* rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(lsb, b_.getInt32(0x7fff))), 16);
    Value* quiet = b_.CreateOr(b_.CreateLShr(bits, 16), b_.getInt32(0x40));
    return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(x, x), quiet, rounded), b_.getInt16Ty());
  }

  // ---- values: an explicit stack, as trees may be deep -------------------------------------------------------------

  Value* value(NodeId root) {
    struct Task {
      NodeId node;
      int stage;
      Value* slot;
      BasicBlock *other, *join;
    };
    std::vector<Task> work = {{root, 0, nullptr, nullptr, nullptr}};
    while (!work.empty()) {
      const Task t = work.back();
      work.pop_back();
      if (value_[t.node]) continue;
      const Node& n = code_->nodes[t.node];
      const auto o = code_->operands_of(t.node);
      const bool lazy = n.act == Act::select || n.act == Act::logical_and || n.act == Act::logical_or;
      if (lazy && t.stage == 0) {
        work.push_back({t.node, 1, nullptr, nullptr, nullptr});
        work.push_back({o[0], 0, nullptr, nullptr, nullptr});
      } else if (lazy && t.stage == 1) {
        Value* place = slot(type(n.cls));
        Value* condition = value_[o[0]];
        auto *first = block("then"), *join = block("join");
        if (n.act == Act::select) {
          auto* other = block("else");
          b_.CreateCondBr(condition, first, other);
          work.push_back({t.node, 2, place, other, join});
        } else {
          b_.CreateStore(condition, place);
          if (n.act == Act::logical_and)
            b_.CreateCondBr(condition, first, join);
          else
            b_.CreateCondBr(condition, join, first);
          work.push_back({t.node, 3, place, nullptr, join});
        }
        b_.SetInsertPoint(first);
        work.push_back({o[1], 0, nullptr, nullptr, nullptr});
      } else if (lazy && t.stage == 2) {
        b_.CreateStore(value_[o[1]], t.slot);
        b_.CreateBr(t.join);
        b_.SetInsertPoint(t.other);
        work.push_back({t.node, 3, t.slot, nullptr, t.join});
        work.push_back({o[2], 0, nullptr, nullptr, nullptr});
      } else if (lazy) {
        b_.CreateStore(value_[o.back()], t.slot);
        b_.CreateBr(t.join);
        b_.SetInsertPoint(t.join);
        value_[t.node] = b_.CreateLoad(type(n.cls), t.slot);
      } else if (t.stage == 0 && !o.empty()) {
        work.push_back({t.node, 1, nullptr, nullptr, nullptr});
        for (size_t i = o.size(); i-- > 0;) work.push_back({o[i], 0, nullptr, nullptr, nullptr});
      } else {
        value_[t.node] = operation(t.node);
      }
    }
    return value_[root];
  }

  Value* operation(NodeId id) {
    const Node& n = code_->nodes[id];
    const auto o = code_->operands_of(id);
    auto x = [&](size_t k) { return value_[o[k]]; };
    const bool real = leir::is_real(n.cls);
    switch (n.act) {
      case Act::integer: return llvm::ConstantInt::get(type(n.cls), static_cast<uint64_t>(n.integer), true);
      case Act::real: return llvm::ConstantFP::get(type(n.cls), n.real);
      case Act::index: return b_.CreateLoad(b_.getInt64Ty(), index_[n.meaning]);
      case Act::load: {
        std::vector<Value*> subscripts;
        for (NodeId s : o) subscripts.push_back(value_[s]);
        if (n.meaning != kNone && id != accumulator_) check(n.meaning, subscripts);
        Value* v = load(n.variable, subscripts);
        if (id != accumulator_) return v;
        Value* first = b_.getTrue();
        for (uint32_t l : p_.equations()[p_.equation_of(item_)].reductions)
          first = b_.CreateAnd(first, b_.CreateICmpEQ(b_.CreateLoad(b_.getInt64Ty(), index_[l]), i64(0)));
        Value* identity =
            real ? static_cast<Value*>(llvm::ConstantFP::get(type(n.cls), typed_->identity))
                 : llvm::ConstantInt::get(type(n.cls), static_cast<uint64_t>(typed_->identity_integer), true);
        return b_.CreateSelect(first, identity, v);
      }
      case Act::convert: return convert(x(0), code_->nodes[o[0]].cls, n.cls);
      case Act::add: return real ? b_.CreateFAdd(x(0), x(1)) : b_.CreateAdd(x(0), x(1));
      case Act::sub: return real ? b_.CreateFSub(x(0), x(1)) : b_.CreateSub(x(0), x(1));
      case Act::mul: return real ? b_.CreateFMul(x(0), x(1)) : b_.CreateMul(x(0), x(1));
      case Act::div: return b_.CreateFDiv(x(0), x(1));
      case Act::negate: return real ? b_.CreateFNeg(x(0)) : b_.CreateNeg(x(0));
      case Act::floordiv:
      case Act::mod: return divide(n, o);
      case Act::power: {
        if (!real) return call("pow", true, {x(0), i64(n.integer)});
        Value *square = x(0), *result = nullptr;
        for (auto e = static_cast<uint64_t>(std::llabs(n.integer)); e; e >>= 1) {
          if (e & 1) result = result ? b_.CreateFMul(result, square) : square;
          if (e > 1) square = b_.CreateFMul(square, square);
        }
        Value* one = llvm::ConstantFP::get(type(n.cls), 1.0);
        if (!result) result = one;
        return n.integer < 0 ? b_.CreateFDiv(one, result) : result;
      }
      case Act::raise:
        if (!real) return call("pow", true, {x(0), x(1)});
        return narrowed(n.cls, call("pow", false, {wide(x(0)), wide(x(1))}));
      case Act::compare: {
        const Class from = code_->nodes[o[0]].cls;
        using P = llvm::CmpInst::Predicate;
        constexpr P kReal[] = {P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE, P::FCMP_OEQ, P::FCMP_UNE};
        constexpr P kSigned[] = {P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE, P::ICMP_EQ, P::ICMP_NE};
        constexpr P kUnsigned[] = {P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE, P::ICMP_EQ, P::ICMP_NE};
        const auto k = static_cast<size_t>(n.comparison);
        return leir::is_real(from)               ? b_.CreateFCmp(kReal[k], x(0), x(1))
               : from == Class::unsigned_integer ? b_.CreateICmp(kUnsigned[k], x(0), x(1))
                                                 : b_.CreateICmp(kSigned[k], x(0), x(1));
      }
      case Act::call: return function(n, o);
      case Act::logical_and:
      case Act::logical_or:
      case Act::select: break;
    }
    CHECK(false, "node {}", id);
  }

  Value* convert(Value* x, Class from, Class to) {
    if (to == Class::boolean)
      return leir::is_real(from) ? b_.CreateFCmpUNE(x, llvm::ConstantFP::get(x->getType(), 0.0))
                                 : b_.CreateICmpNE(x, i64(0));
    if (leir::is_real(to)) {
      if (leir::is_real(from)) return to == Class::f64 ? b_.CreateFPExt(x, type(to)) : b_.CreateFPTrunc(x, type(to));
      if (from == Class::integer) return b_.CreateSIToFP(x, type(to));
      return b_.CreateUIToFP(x, type(to));
    }
    if (leir::is_real(from)) return to_integer(x, Type::i64);
    return from == Class::boolean ? b_.CreateZExt(x, b_.getInt64Ty()) : x;
  }

  Value* divide(const Node& n, std::span<const NodeId> o) {
    Value *a = value_[o[0]], *d = value_[o[1]];
    const Node& divisor = code_->nodes[o[1]];
    const bool positive = divisor.act == Act::integer && divisor.integer > 0;
    if (!positive)
      fail_if(b_.CreateICmpEQ(d, i64(0)), item_ == kNone ? 0 : p_.equations()[p_.equation_of(item_)].first_access);
    if (n.cls == Class::unsigned_integer) return n.act == Act::mod ? b_.CreateURem(a, d) : b_.CreateUDiv(a, d);
    Value* least = b_.CreateICmpEQ(d, i64(-1));  // the one quotient that overflows: negated instead
    Value* safe = positive ? d : b_.CreateSelect(least, i64(1), d);
    Value *q = b_.CreateSDiv(a, safe), *r = b_.CreateSRem(a, safe);
    Value* down = b_.CreateAnd(b_.CreateICmpNE(r, i64(0)), b_.CreateICmpSLT(b_.CreateXor(r, safe), i64(0)));
    if (n.act == Act::mod) {
      Value* m = b_.CreateSelect(down, b_.CreateAdd(r, safe), r);
      return positive ? m : b_.CreateSelect(least, i64(0), m);
    }
    Value* floor = b_.CreateSub(q, b_.CreateZExt(down, b_.getInt64Ty()));
    return positive ? floor : b_.CreateSelect(least, b_.CreateNeg(a), floor);
  }

  Value* wide(Value* x) { return x->getType()->isFloatTy() ? b_.CreateFPExt(x, b_.getDoubleTy()) : x; }
  Value* narrowed(Class c, Value* x) { return c == Class::f32 ? b_.CreateFPTrunc(x, b_.getFloatTy()) : x; }
  // A helper of the process: the meaning of the function itself.
  Value* call(std::string_view name, bool integer, std::vector<Value*> arguments) {
    const auto fn = fn_from_name(name);
    CHECK(fn, "{}", name);
    return call_symbol(helper_symbol(*fn, integer), arguments);
  }
  Value* call_symbol(const std::string& symbol, const std::vector<Value*>& arguments) {
    llvm::Type* t = arguments[0]->getType();
    const std::vector<llvm::Type*> types(arguments.size(), t);
    auto f = module_->getOrInsertFunction(symbol, llvm::FunctionType::get(t, types, false));
    auto* declared = llvm::cast<llvm::Function>(f.getCallee());
    declared->setDoesNotThrow();
    declared->setDoesNotAccessMemory();
    declared->setWillReturn();
    return b_.CreateCall(f, arguments);
  }

  // NaN wins, -0 is below +0: what the intrinsics maximum and minimum say.
  Value* extreme(bool largest, Value* a, Value* b) {
    Value* v = b_.CreateSelect(largest ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
    // Equal: of zeros the one with the right sign; the bits tell.
    llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(a->getType()->getPrimitiveSizeInBits()));
    Value *x = b_.CreateBitCast(a, bits), *y = b_.CreateBitCast(b, bits);
    Value* merged = b_.CreateBitCast(largest ? b_.CreateAnd(x, y) : b_.CreateOr(x, y), a->getType());
    v = b_.CreateSelect(b_.CreateFCmpOEQ(a, b), merged, v);
    v = b_.CreateSelect(b_.CreateFCmpUNO(b, b), b, v);
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, v);
  }

  Value* function(const Node& n, std::span<const NodeId> o) {
    auto x = [&](size_t k) { return value_[o[k]]; };
    const Class from = code_->nodes[o[0]].cls;
    if (!leir::is_real(from)) {
      std::vector<Value*> arguments;
      for (NodeId k : o) arguments.push_back(value_[k]);
      if (n.function == Function::max) return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x(0), x(1));
      if (n.function == Function::min) return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x(0), x(1));
      return call(info(n.function).name, true, arguments);
    }
    auto intrinsic = [&](llvm::Intrinsic::ID i) { return b_.CreateUnaryIntrinsic(i, x(0)); };
    llvm::Type* t = x(0)->getType();
    switch (n.function) {
      case Function::max: return extreme(true, x(0), x(1));
      case Function::min: return extreme(false, x(0), x(1));
      case Function::clamp: return extreme(false, extreme(true, x(0), x(1)), x(2));
      case Function::relu: return extreme(true, x(0), llvm::ConstantFP::get(t, 0.0));
      case Function::abs: return intrinsic(llvm::Intrinsic::fabs);
      case Function::sqrt: return intrinsic(llvm::Intrinsic::sqrt);
      case Function::floor: return intrinsic(llvm::Intrinsic::floor);
      case Function::ceil: return intrinsic(llvm::Intrinsic::ceil);
      case Function::round: return intrinsic(llvm::Intrinsic::nearbyint);
      case Function::fma:
        return narrowed(
            n.cls, b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getDoubleTy()}, {wide(x(0)), wide(x(1)), wide(x(2))}));
      case Function::isnan: return b_.CreateFCmpUNO(x(0), x(0));
      case Function::isinf: return b_.CreateFCmpOEQ(intrinsic(llvm::Intrinsic::fabs), llvm::ConstantFP::getInfinity(t));
      case Function::exp:
      case Function::exp2:
      case Function::expm1:
      case Function::log:
      case Function::log2:
      case Function::log1p:
      case Function::sin:
      case Function::cos:
      case Function::tan:
      case Function::tanh:
      case Function::erf:
        if (!o_.strict && n.cls == Class::f32) return call_symbol(std::string(info(n.function).name) + "f", {x(0)});
        return narrowed(n.cls, call_symbol(info(n.function).name, {wide(x(0))}));
      default: {
        std::vector<Value*> arguments;
        for (NodeId k : o) arguments.push_back(wide(value_[k]));
        return narrowed(n.cls, call(info(n.function).name, false, arguments));
      }
    }
  }

  const Program& p_;
  const Syntax& s_;
  const LeirOptions& o_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  std::unique_ptr<llvm::Module> module_;
  llvm::Function* body_ = nullptr;
  BasicBlock* entry_ = nullptr;
  std::vector<Value*> index_;
  std::vector<OpenLoop> open_;
  const Typed* code_ = nullptr;
  const TypedEquation* typed_ = nullptr;
  uint32_t item_ = kNone;
  std::vector<Value*> value_;
  NodeId accumulator_ = kNone;
  std::set<uint32_t> begun_;
};

// Object code through LLVM's -O3 pipeline.
Result<std::vector<uint8_t>> optimized_object(llvm::Module& module, const Target& target) {
  TRY_ASSIGN(const auto machine, target_machine(target));
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  // Without a processor's name on the functions, vectors are as wide as the oldest one has them.
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", target.cpu);
    f.addFnAttr("target-features", target.features);
  }
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = tuning.LoopInterleaving = tuning.LoopUnrolling = true;
  llvm::PassBuilder builder(machine.get(), tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
  TRY_ASSIGN(const auto bytes, generate(module, *machine, llvm::CodeGenFileType::ObjectFile));
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

}  // namespace

Result<LeirCode> compile_leir(const leir::Program& program, const LeirOptions& options) {
  llvm::LLVMContext context;
  TRY_ASSIGN(std::unique_ptr<llvm::Module> module, LeirEmitter(program, options, context).run());
  TRY_ASSIGN(std::vector<uint8_t> object, optimized_object(*module, options.target));
  LeirCode out;
  TRY_ASSIGN(out.module_, load_object(std::move(object)));
  TRY_ASSIGN(const CleaveKernel f, out.module_.function("leir_run"));
  out.function_ = reinterpret_cast<LeirCode::Function>(f);
  return out;
}

}  // namespace cleave::jit
