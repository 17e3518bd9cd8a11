#include "jit/leir.hpp"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "jit/emit.hpp"
#include "jit/leir_bounds.hpp"
#include "jit/leir_object.hpp"
#include "leir/walk.hpp"

namespace cleave::jit {

namespace {

using namespace leir;
using llvm::BasicBlock;
using llvm::Value;

class LeirEmitter : private Walker {
 public:
  LeirEmitter(const Program& p, const LeirOptions& o, llvm::LLVMContext& c)
      : Walker(p, "machine code"),
        s_(p.syntax()),
        o_(o),
        c_(c),
        b_(c),
        module_(std::make_unique<llvm::Module>("leir", c)) {
    if (!o.bounds) return;
    // The coarsest class that anything is computed in.
    double unit = 0x1p-53;
    for (const Variable& v : p.variables())
      if (leir::is_real(v.type) && v.type != Type::f64) unit = 0x1p-24;
    bounds_.emplace(b_, o.bounds, unit);
  }
  std::shared_ptr<const void> alive() const { return bounds_ ? bounds_->nodes() : nullptr; }

  // One function for each top-level nest, `leir_nest_K(v, at, begin, end)`, in order.
  Result<std::unique_ptr<llvm::Module>> run() {
    for (uint32_t i = 0; i < s_.items.size(); i = s_.items[i].end)
      if (Diagnostics bad = function(i); !bad.empty()) return bad;
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    CHECK(!llvm::verifyModule(*module_, &stream), "{}", problem);
    return std::move(module_);
  }
  // The extent of the outermost loop of each nest where its iterations may run at the same time, else 0.
  const std::vector<int64_t>& parallel() const { return parallel_; }

 private:
  Diagnostics function(uint32_t nest_item) {
    const auto n = static_cast<unsigned>(p_.variables().size() * (bounds_ ? 2 : 1));
    llvm::Type *pointer = b_.getPtrTy(), *i64 = b_.getInt64Ty();
    // The body has a parameter for each buffer, so that none is thought to overlap another.
    std::vector<llvm::Type*> parameters(n + 1, pointer);
    parameters.insert(parameters.end(), {i64, i64});
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), parameters, false);
    body_ = llvm::Function::Create(type, llvm::Function::InternalLinkage, "body", *module_);
    body_->addFnAttr(llvm::Attribute::NoInline);
    body_->addFnAttr(llvm::Attribute::MustProgress);
    for (unsigned i = 0; i < n; ++i) {
      body_->addParamAttr(i, llvm::Attribute::NoAlias);
      if (i < p_.variables().size() && is_input(i)) body_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    at_ = body_->getArg(n);
    split_ = divisible(nest_item) ? s_.items[nest_item].first_loop : kNone;
    entry_ = block("entry");
    index_.assign(s_.loops.size(), nullptr);
    if (bounds_) scratch_ = llvm::IRBuilder<>(entry_).CreateAlloca(b_.getDoubleTy(), b_.getInt64(6));
    auto* start = block("start");
    b_.SetInsertPoint(start);
    if (Diagnostics bad = nest(nest_item); !bad.empty()) return bad;
    b_.CreateRet(b_.getInt32(0));
    llvm::IRBuilder<>(entry_).CreateBr(start);

    auto* outer = llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, i64, i64}, false);
    auto* f = llvm::Function::Create(outer, llvm::Function::ExternalLinkage,
                                     kernel_symbol(fmt::format("leir_nest_{}", parallel_.size())), *module_);
    b_.SetInsertPoint(BasicBlock::Create(c_, "entry", f));
    std::vector<Value*> arguments;
    for (unsigned i = 0; i < n; ++i)
      arguments.push_back(b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, f->getArg(0), i)));
    for (unsigned i = 1; i < 4; ++i) arguments.push_back(f->getArg(i));
    b_.CreateRet(b_.CreateCall(body_, arguments));
    parallel_.push_back(split_ == kNone ? 0 : *p_.extent(split_));
    return {};
  }
  // May iterations of the nest's outermost loop run at the same time? The checker has found loops of kind P and B
  // independent; what is reduced over them, or private to an iteration, would need memory for each.
  bool divisible(uint32_t nest_item) const {
    const uint32_t loop = s_.items[nest_item].first_loop;
    const Kind kind = s_.loops[loop].kind;
    if (!o_.divide || (kind != Kind::parallel && kind != Kind::bind) || p_.extent(loop).value_or(1) < 2) return false;
    for (uint32_t i = nest_item; i < s_.items[nest_item].end; ++i) {
      if (s_.items[i].nest()) continue;
      const Access& w = p_.accesses()[p_.equations()[p_.equation_of(i)].first_access];
      if (std::none_of(w.subscripts.begin(), w.subscripts.end(),
                       [&](sym::Expr e) { return p_.pool().mentions(e, p_.symbol(loop)); }))
        return false;
    }
    return true;
  }
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
  bool is_input(uint32_t variable) const {
    const Variable& v = p_.variables()[variable];
    return v.known() && v.role != Role::output;
  }
  Precision precision() const { return bounds_ ? Precision::f64 : Precision::storage; }
  llvm::Type* storage(Type t) {
    if (bounds_ && leir::is_real(t)) return b_.getDoubleTy();
    switch (t) {
      case Type::f64: return b_.getDoubleTy();
      case Type::f32: return b_.getFloatTy();
      case Type::f16: return b_.getHalfTy();
      case Type::bf16: return b_.getInt16Ty();
      default: return b_.getIntNTy(static_cast<unsigned>(8 * byte_size(t)));
    }
  }
  Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }

  struct OpenLoop {
    uint32_t loop;
    BasicBlock *latch, *exit;
  };
  struct Branch {  // of an open lazy operator
    Value *place, *error;
    BasicBlock *other, *join;
  };

  Diagnostics begin_loop(uint32_t l) override {
    Value *n = nullptr, *first = i64(0);
    if (l == split_) {
      first = body_->getArg(static_cast<unsigned>(body_->arg_size() - 2));
      n = body_->getArg(static_cast<unsigned>(body_->arg_size() - 1));
    } else if (const auto e = p_.extent(l)) {
      n = i64(*e);
    } else {
      auto t = type_extent(p_, l);
      if (!t) return t.errors();
      begin(*t, kNone);
      n = value(t->root);
    }
    Value* at = slot(b_.getInt64Ty());
    b_.CreateStore(first, at);
    auto *head = block("head"), *inside = block("body"), *latch = block("latch"), *exit = block("exit");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    Value* i = b_.CreateLoad(b_.getInt64Ty(), at);
    b_.CreateCondBr(b_.CreateICmpSLT(i, n), inside, exit);
    b_.SetInsertPoint(latch);
    Value* next = b_.CreateNSWAdd(b_.CreateLoad(b_.getInt64Ty(), at), i64(1));
    b_.CreateStore(next, at);
    wish(b_.CreateBr(head), s_.loops[l].kind);
    b_.SetInsertPoint(inside);
    index_[l] = at;
    open_.push_back({l, latch, exit});
    return {};
  }
  // What kinds V and U ask for.
  void wish(llvm::Instruction* latch, Kind kind) {
    if (kind != Kind::vector && kind != Kind::unroll) return;
    std::vector<llvm::Metadata*> wish = {
        llvm::MDString::get(c_, kind == Kind::vector ? "llvm.loop.vectorize.enable" : "llvm.loop.unroll.enable")};
    if (kind == Kind::vector) wish.push_back(llvm::ConstantAsMetadata::get(b_.getTrue()));
    auto* loop = llvm::MDNode::getDistinct(c_, {nullptr, llvm::MDNode::get(c_, wish)});
    loop->replaceOperandWith(0, loop);
    latch->setMetadata(llvm::LLVMContext::MD_loop, loop);
  }
  void end_loop(uint32_t) override {
    const OpenLoop o = open_.back();
    open_.pop_back();
    b_.CreateBr(o.latch);
    b_.SetInsertPoint(o.exit);
    index_[o.loop] = nullptr;
  }

  Diagnostics first_value(uint32_t i) override {
    const EquationInfo& q = p_.equations()[p_.equation_of(i)];
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, p_.equation_of(i), precision()));
    begin(t.code, i);
    const Type target = p_.variables()[q.target].type;
    const Class c = bounds_ && leir::is_real(target) ? Class::f64 : class_of_values(target);
    const std::vector<Value*> subscripts = values(t.code.subscripts);
    store(q.target, subscripts, identity(t, c), c);
    if (has_error(q.target)) b_.CreateStore(bounds_->zero(), error_address(q.target, subscripts));
    return {};
  }
  Value* identity(const TypedEquation& t, Class c) {
    return leir::is_real(c) ? static_cast<Value*>(llvm::ConstantFP::get(type(c), t.identity))
                            : llvm::ConstantInt::get(type(c), static_cast<uint64_t>(t.identity_integer), true);
  }

  void begin(const Typed& code, uint32_t item) {
    code_ = &code;
    item_ = item;
    value_.assign(code.nodes.size(), nullptr);
    error_.assign(bounds_ ? code.nodes.size() : 0, bounds_ ? bounds_->zero() : nullptr);
    accumulator_ = kNone;
  }
  std::vector<Value*> values(std::span<const NodeId> nodes) {
    std::vector<Value*> out;
    for (NodeId n : nodes) out.push_back(value(n));
    return out;
  }

  Diagnostics equation(uint32_t i) override {
    const uint32_t number = p_.equation_of(i);
    const EquationInfo& q = p_.equations()[number];
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, number, precision()));
    begin(t.code, i);
    typed_ = &t;
    accumulator_ = first_values_given(i) ? kNone : t.accumulator;
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
    if (has_error(q.target))
      b_.CreateStore(bounds_->stored(p_.variables()[q.target].type, v, error_[t.code.root]),
                     error_address(q.target, subscripts));
    b_.clearFastMathFlags();
    typed_ = nullptr;
    return {};
  }

  // ---- elements ---------------------------------------------------------------------------------------------------

  void fail_if(Value* condition, uint32_t access, bool divisor = false) {
    auto *bad = block("bad"), *good = block("good");
    b_.CreateCondBr(condition, bad, good);
    b_.SetInsertPoint(bad);
    for (size_t k = 0; k < open_.size(); ++k)
      b_.CreateStore(b_.CreateLoad(b_.getInt64Ty(), index_[open_[k].loop]),
                     b_.CreateConstGEP1_64(b_.getInt64Ty(), at_, k));
    b_.CreateRet(b_.getInt32(divisor ? 0 - (access + 1) : access + 1));
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
  Value* flat(uint32_t variable, const std::vector<Value*>& subscripts) {
    Value* at = i64(0);
    for (size_t d = 0; d < subscripts.size(); ++d)
      at = b_.CreateNSWAdd(b_.CreateNSWMul(at, i64(p_.variables()[variable].shape[d])), subscripts[d]);
    return at;
  }
  Value* address(uint32_t variable, const std::vector<Value*>& subscripts) {
    return b_.CreateInBoundsGEP(storage(p_.variables()[variable].type), body_->getArg(variable),
                                flat(variable, subscripts));
  }
  // Inputs are what they are.
  bool has_error(uint32_t variable) const {
    return bounds_ && leir::is_real(p_.variables()[variable].type) && !is_input(variable);
  }
  Value* error_address(uint32_t variable, const std::vector<Value*>& subscripts) {
    return b_.CreateInBoundsGEP(b_.getDoubleTy(),
                                body_->getArg(static_cast<unsigned>(p_.variables().size()) + variable),
                                flat(variable, subscripts));
  }
  Value* load(uint32_t variable, const std::vector<Value*>& subscripts) {
    const Type t = p_.variables()[variable].type;
    Value* x = b_.CreateLoad(storage(t), address(variable, subscripts));
    if (bounds_ && leir::is_real(t)) return x;
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
    if (bounds_ && leir::is_real(t)) {
      // as it is
    } else if (leir::is_real(t)) {
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

  // ---- values -----------------------------------------------------------------------------------------------------

  Value* value(NodeId root) {
    tree(*code_, root);
    return value_[root];
  }
  bool done(NodeId n) const override { return value_[n]; }
  void operation(NodeId n) override {
    value_[n] = value_of(n);
    if (bounds_ && leir::is_real(code_->nodes[n].cls)) error_[n] = error_of(n);
  }
  Value* error_of(NodeId id) {
    const Node& n = code_->nodes[id];
    const auto o = code_->operands_of(id);
    switch (n.act) {
      case Act::integer:
      case Act::real: return bounds_->zero();
      case Act::convert: return leir::is_real(code_->nodes[o[0]].cls) ? error_[o[0]] : bounds_->zero();
      case Act::load: {
        if (!has_error(n.variable)) return bounds_->zero();
        std::vector<Value*> subscripts;
        for (NodeId s : o) subscripts.push_back(value_[s]);
        Value* e = b_.CreateLoad(b_.getDoubleTy(), error_address(n.variable, subscripts));
        return id == accumulator_ ? b_.CreateSelect(begins(), bounds_->zero(), e) : e;
      }
      default: {
        std::vector<Value*> x, e;
        for (NodeId k : o) {
          x.push_back(value_[k]);
          e.push_back(error_[k]);
        }
        return bounds_->operation(n, value_[id], x, e, scratch_);
      }
    }
  }
  void begin_branch(NodeId lazy) override {
    const Node& n = code_->nodes[lazy];
    Value* condition = value_[code_->operands_of(lazy)[0]];
    const bool has_bound = bounds_ && leir::is_real(n.cls);
    Branch b{slot(type(n.cls)), has_bound ? slot(b_.getDoubleTy()) : nullptr, nullptr, block("join")};
    auto* first = block("then");
    if (n.act == Act::select) {
      b.other = block("else");
      b_.CreateCondBr(condition, first, b.other);
    } else {
      b_.CreateStore(condition, b.place);
      if (n.act == Act::logical_and)
        b_.CreateCondBr(condition, first, b.join);
      else
        b_.CreateCondBr(condition, b.join, first);
    }
    b_.SetInsertPoint(first);
    branches_.push_back(b);
  }
  void other_branch(NodeId select) override {
    const Branch& b = branches_.back();
    keep(code_->operands_of(select)[1], b);
    b_.CreateBr(b.join);
    b_.SetInsertPoint(b.other);
  }
  void end_branch(NodeId lazy) override {
    const Branch b = branches_.back();
    branches_.pop_back();
    keep(code_->operands_of(lazy).back(), b);
    b_.CreateBr(b.join);
    b_.SetInsertPoint(b.join);
    value_[lazy] = b_.CreateLoad(type(code_->nodes[lazy].cls), b.place);
    if (b.error) error_[lazy] = b_.CreateLoad(b_.getDoubleTy(), b.error);
  }
  void keep(NodeId result, const Branch& b) {
    b_.CreateStore(value_[result], b.place);
    if (b.error) b_.CreateStore(error_[result], b.error);
  }

  Value* value_of(NodeId id) {
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
        return b_.CreateSelect(begins(), identity(*typed_, n.cls), v);
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

  // Is this the iteration in which the accumulation starts?
  Value* begins() {
    Value* first = b_.getTrue();
    for (uint32_t l : p_.equations()[p_.equation_of(item_)].reductions)
      first = b_.CreateAnd(first, b_.CreateICmpEQ(b_.CreateLoad(b_.getInt64Ty(), index_[l]), i64(0)));
    return first;
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
      fail_if(b_.CreateICmpEQ(d, i64(0)), item_ == kNone ? 0 : p_.equations()[p_.equation_of(item_)].first_access,
              true);
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

  // NaN wins, -0 is below +0.
  Value* extreme(bool largest, Value* a, Value* b) {
    return b_.CreateBinaryIntrinsic(largest ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, a, b);
  }

  // In fast code: composed functions in their own class, so that nothing is called for them but libm.
  Value* inlined(const Node& n, std::span<const NodeId> o) {
    Value* x = value_[o[0]];
    auto number = [&](double v) { return llvm::ConstantFP::get(x->getType(), v); };
    auto libm = [&](const char* name, Value* a) {
      return call_symbol(n.cls == Class::f32 ? std::string(name) + "f" : name, {a});
    };
    // `below(x)` where x <= 0, else `above`: only one is evaluated, NaN goes above.
    auto by_sign = [&](Value* above, auto&& below) {
      auto *start = b_.GetInsertBlock(), *negative = block("negative"), *join = block("join");
      b_.CreateCondBr(b_.CreateFCmpOLE(x, number(0)), negative, join);
      b_.SetInsertPoint(negative);
      Value* v = below();
      auto* from = b_.GetInsertBlock();
      b_.CreateBr(join);
      b_.SetInsertPoint(join);
      llvm::PHINode* phi = b_.CreatePHI(x->getType(), 2);
      phi->addIncoming(above, start);
      phi->addIncoming(v, from);
      return static_cast<Value*>(phi);
    };
    // Infinities times what has become 0 keep their limits: infinity, and 0.
    auto gate = [&](Value* g) {
      Value* magnitude = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      Value* limit = b_.CreateAnd(b_.CreateFCmpOEQ(g, number(0)),
                                  b_.CreateFCmpOEQ(magnitude, llvm::ConstantFP::getInfinity(x->getType())));
      Value* at_infinity = b_.CreateSelect(b_.CreateFCmpOGT(x, number(0)), x, number(-0.0));
      return b_.CreateSelect(limit, at_infinity, b_.CreateFMul(x, g));
    };
    auto sigmoid = [&](Value* of) {
      return b_.CreateFDiv(number(1), b_.CreateFAdd(number(1), libm("exp", b_.CreateFNeg(of))));
    };
    auto hardsigmoid = [&] {
      Value* line = b_.CreateFAdd(b_.CreateFMul(x, number(1.0 / 6)), number(0.5));
      return extreme(false, extreme(true, line, number(0)), number(1));
    };
    auto softplus = [&] {
      Value* small = libm("exp", b_.CreateFNeg(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)));
      return b_.CreateFAdd(extreme(true, x, number(0)), libm("log1p", small));
    };
    switch (n.function) {
      case Function::square: return b_.CreateFMul(x, x);
      case Function::reciprocal: return b_.CreateFDiv(number(1), x);
      case Function::rsqrt: return b_.CreateFDiv(number(1), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
      case Function::sigmoid: return sigmoid(x);
      case Function::softplus: return softplus();
      case Function::hardsigmoid: return hardsigmoid();
      case Function::silu: return gate(sigmoid(x));
      case Function::hardswish: return gate(hardsigmoid());
      case Function::mish: return gate(libm("tanh", softplus()));
      case Function::gelu_erf:
        return gate(b_.CreateFMul(number(0.5), libm("erfc", b_.CreateFMul(x, number(-0.70710678118654752440)))));
      case Function::gelu_tanh: {
        Value* cubic = b_.CreateFMul(number(0.044715), b_.CreateFMul(x, b_.CreateFMul(x, x)));
        return gate(sigmoid(b_.CreateFMul(number(2 * 0.79788456080286535588), b_.CreateFAdd(x, cubic))));
      }
      case Function::leaky_relu:
        return b_.CreateSelect(b_.CreateFCmpOLE(x, number(0)), b_.CreateFMul(x, value_[o[1]]), x);
      case Function::elu: return by_sign(x, [&] { return b_.CreateFMul(value_[o[1]], libm("expm1", x)); });
      case Function::selu:
        return by_sign(b_.CreateFMul(number(1.0507009873554805), x), [&] {
          return b_.CreateFMul(number(1.0507009873554805 * 1.6732632423543772), libm("expm1", x));
        });
      default: return nullptr;
    }
  }

  Value* function(const Node& n, std::span<const NodeId> o) {
    auto x = [&](size_t k) { return value_[o[k]]; };
    const Class from = code_->nodes[o[0]].cls;
    if (!leir::is_real(from)) {
      std::vector<Value*> arguments;
      for (NodeId k : o) arguments.push_back(value_[k]);
      if (from == Class::unsigned_integer) {
        const auto both = [&](llvm::Intrinsic::ID i, Value* a, Value* b) { return b_.CreateBinaryIntrinsic(i, a, b); };
        switch (n.function) {
          case Function::max: return both(llvm::Intrinsic::umax, x(0), x(1));
          case Function::min: return both(llvm::Intrinsic::umin, x(0), x(1));
          case Function::clamp: return both(llvm::Intrinsic::umin, both(llvm::Intrinsic::umax, x(0), x(1)), x(2));
          case Function::relu:
          case Function::abs: return x(0);
          case Function::sign: return b_.CreateZExt(b_.CreateICmpNE(x(0), i64(0)), b_.getInt64Ty());
          default: break;
        }
      }
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
        if (!o_.strict)
          if (Value* v = inlined(n, o)) return v;
        std::vector<Value*> arguments;
        for (NodeId k : o) arguments.push_back(wide(value_[k]));
        return narrowed(n.cls, call(info(n.function).name, false, arguments));
      }
    }
  }

  const Syntax& s_;
  const LeirOptions& o_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  std::unique_ptr<llvm::Module> module_;
  llvm::Function* body_ = nullptr;
  Value* at_ = nullptr;     // where a failing check leaves the values of the loops
  uint32_t split_ = kNone;  // the outermost loop whose iterations are divided
  std::vector<int64_t> parallel_;
  BasicBlock* entry_ = nullptr;
  std::vector<Value*> index_;
  std::vector<OpenLoop> open_;
  std::vector<Branch> branches_;
  const Typed* code_ = nullptr;
  const TypedEquation* typed_ = nullptr;
  uint32_t item_ = kNone;
  std::vector<Value*> value_, error_;
  std::optional<LeirBoundEmitter> bounds_;
  Value* scratch_ = nullptr;
  NodeId accumulator_ = kNone;
};

// How often equations are evaluated in a run; loops whose extent is not known count once.
double evaluations(const Program& p) {
  double out = 0;
  for (const EquationInfo& q : p.equations()) {
    double times = 1;
    for (uint32_t l : q.loops) times *= static_cast<double>(p.extent(l).value_or(1));
    out += times;
  }
  return out;
}

}  // namespace

Result<LeirCode> compile_leir(const leir::Program& program, const LeirOptions& options) {
  llvm::LLVMContext context;
  LeirEmitter emitter(program, options, context);
  TRY_ASSIGN(std::unique_ptr<llvm::Module> module, emitter.run());
  TRY_ASSIGN(std::vector<uint8_t> object, leir_object(*module, options, evaluations(program)));
  LeirCode out;
  out.alive_ = emitter.alive();
  TRY_ASSIGN(out.module_, load_object(std::move(object)));
  for (const int64_t extent : emitter.parallel()) {
    TRY_ASSIGN(const CleaveKernel f, out.module_.function(fmt::format("leir_nest_{}", out.nests_.size())));
    out.nests_.push_back({reinterpret_cast<LeirCode::Nest>(reinterpret_cast<void*>(f)), extent});
  }
  return out;
}

int LeirCode::run(void* const* v, int64_t* at) const {
  for (const Part& nest : nests_)
    if (const int code = nest.run(v, at, 0, nest.extent)) return code;
  return 0;
}

int LeirCode::run(void* const* v, int64_t* at, Executor& executor) const {
  constexpr int64_t kTasksAWorker = 4;
  struct Failure {
    int code = 0;
    std::array<int64_t, 64> at{};
  };
  for (const Part& nest : nests_) {
    const int64_t tasks = std::clamp<int64_t>(nest.extent, 1, kTasksAWorker * executor.workers());
    std::vector<Failure> failures(static_cast<size_t>(tasks));
    executor.for_each(tasks, [&](int64_t task, int) {
      Failure& f = failures[static_cast<size_t>(task)];
      f.code = nest.run(v, f.at.data(), nest.extent * task / tasks, nest.extent * (task + 1) / tasks);
    });
    for (const Failure& f : failures) {  // the first in written order
      if (!f.code) continue;
      std::copy(f.at.begin(), f.at.end(), at);
      return f.code;
    }
  }
  return 0;
}

}  // namespace cleave::jit
