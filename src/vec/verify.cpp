// The rules of the vector IR. docs/vec.md states them in words.
#include <algorithm>
#include <set>

#include "base/codes.hpp"
#include "vec/vec.hpp"

namespace cleave::vec {

namespace {

constexpr int kMaxDepth = 200;

class Verifier {
 public:
  Verifier(const Function& f, Diagnostics& out) : f_(f), out_(out), defined_(f.values.size(), false) {}

  void run() {
    for (uint32_t i = 0; i < f_.values.size(); ++i) {
      const ValueInfo& v = f_.values[Value(i)];
      if (!legal(v.type)) fail("value", fmt::format("value {} has the type {}", i, describe(v.type)));
      if (v.kind == ValueKind::constant) {
        defined_[i] = true;
        if (v.type.elem == Elem::ptr) fail("const", "a pointer is no constant");
      }
    }
    if (!out_.empty()) return;
    if (f_.body.index >= f_.blocks.size()) return fail("body", "there is no body block");
    const auto& arguments = f_.blocks[f_.body].arguments;
    if (arguments.size() != 3 || !has_type(arguments[0], kPtr) || !has_type(arguments[1], kI64) ||
        !has_type(arguments[2], kPtr))
      return fail("body", "the signature is not (ptr, i64, ptr)");
    block(f_.body, nullptr, 0);
  }

 private:
  static bool legal(Type t) {
    return static_cast<int>(t.elem) <= static_cast<int>(Elem::ptr) && t.lanes >= 1 && t.lanes <= kMaxLanes &&
           (t.elem != Elem::ptr || t.lanes == 1);
  }
  static std::string describe(Type t) {
    return static_cast<int>(t.elem) <= static_cast<int>(Elem::ptr) ? print(t) : "an unknown element type";
  }
  void fail(std::string_view op, std::string what) {
    if (out_.size() < 100) out_.push_back(diagnose(Code::invalid_vector_program, f_.name, op, what));
  }
  bool exists(Value v) const { return v.index < f_.values.size(); }
  bool has_type(Value v, Type t) const { return exists(v) && f_.values[v].type == t; }

  // Checks a block whose yield must hand on values of the types in `yields` (null: the body, without a yield).
  void block(BlockId id, const std::vector<Type>* yields, int depth) {
    if (depth > kMaxDepth) return fail("block", "nested too deeply");
    if (!blocks_.insert(id.index).second) return fail("block", "a block is used twice");
    const Block& b = f_.blocks[id];
    std::vector<Value> here;
    auto define = [&](Value v, std::string_view op) {
      if (!exists(v) || defined_[v.index]) return fail(op, "a value is defined twice or does not exist");
      defined_[v.index] = true;
      here.push_back(v);
    };
    for (const Value v : b.arguments) define(v, "block");
    bool ended = false;
    for (const InstId inst_id : b.insts) {
      if (inst_id.index >= f_.insts.size() || !insts_.insert(inst_id.index).second) {
        fail("block", "an instruction is used twice or does not exist");
        break;
      }
      const Inst& i = f_.insts[inst_id];
      if (static_cast<int>(i.op) >= kOps) {
        fail("block", "an unknown operation");
        break;
      }
      if (ended) fail(info(i.op).name, "comes after the block's yield");
      instruction(i, yields, depth);
      for (const Value v : i.results) define(v, info(i.op).name);
      ended = ended || i.op == Op::yield;
    }
    if (yields && !ended) fail("block", "an inner block ends without a yield");
    for (const Value v : here) defined_[v.index] = false;  // out of scope
  }

  void instruction(const Inst& i, const std::vector<Type>* yields, int depth) {
    const OpInfo& op = info(i.op);
    for (const Value v : i.operands)
      if (!exists(v) || !defined_[v.index])
        return fail(op.name, fmt::format("operand {} is not defined here", v.index));
    for (const Value v : i.results)
      if (!exists(v)) return fail(op.name, "a result does not exist");
    if (op.operands >= 0 && static_cast<int>(i.operands.size()) != op.operands)
      return fail(op.name, fmt::format("takes {} operands, has {}", op.operands, i.operands.size()));
    if (op.results >= 0 && static_cast<int>(i.results.size()) != op.results)
      return fail(op.name, fmt::format("has {} results, must have {}", i.results.size(), op.results));
    if (static_cast<int>(i.fn) >= static_cast<int>(all_fns().size()) || static_cast<int>(i.dtype) >= kDTypes)
      return fail(op.name, "an unknown scalar function or dtype");
    const std::string problem = check(i, yields, depth);
    if (!problem.empty()) fail(i.op == Op::apply ? cleave::info(i.fn).name : op.name, problem);
  }

  Type operand(const Inst& i, size_t k) const { return f_.values[i.operands[k]].type; }
  Type result(const Inst& i) const { return f_.values[i.results[0]].type; }

  // What is wrong with an instruction whose operands exist; empty when nothing is.
  std::string check(const Inst& i, const std::vector<Type>* yields, int depth) {
    auto must_be = [](std::string_view what, Type is, Type should) {
      return is == should ? std::string() : fmt::format("{} has type {}, not {}", what, print(is), print(should));
    };
    switch (i.op) {
      case Op::apply: return apply(i);
      case Op::fma:
        if (!is_float(result(i).elem)) return "of integers";
        for (size_t k = 0; k < 3; ++k)
          if (operand(i, k) != result(i)) return must_be("an operand", operand(i, k), result(i));
        return "";
      case Op::cast:
        if (operand(i, 0).elem == Elem::ptr || result(i).elem == Elem::ptr) return "of a pointer";
        return operand(i, 0).lanes == result(i).lanes ? "" : "the lanes differ";
      case Op::bitcast:
        if (operand(i, 0).elem == Elem::ptr || result(i).elem == Elem::ptr) return "of a pointer";
        return operand(i, 0).lanes == result(i).lanes && bit_width(operand(i, 0).elem) == bit_width(result(i).elem)
                   ? ""
                   : "the sizes differ";
      case Op::bit_and:
      case Op::bit_or:
      case Op::bit_xor:
      case Op::shl:
      case Op::lshr:
      case Op::ashr:
        if (!is_int(result(i).elem)) return "needs integers";
        return operand(i, 0) == result(i) && operand(i, 1) == result(i) ? "" : "the types differ";
      case Op::splat:
        if (result(i).elem == Elem::ptr) return "of a pointer";
        return must_be("the operand", operand(i, 0), result(i).scalar());
      case Op::iota: return is_int(result(i).elem) ? "" : "needs an integer vector";
      case Op::shuffle:
        if (operand(i, 0) != operand(i, 1)) return "the operands' types differ";
        if (result(i).elem != operand(i, 0).elem || result(i).elem == Elem::ptr) return "changes the element type";
        if (i.indices.size() != result(i).lanes)
          return fmt::format("{} indices for {} lanes", i.indices.size(), result(i).lanes);
        for (const int32_t x : i.indices)
          if (x < 0 || x >= 2 * operand(i, 0).lanes) return fmt::format("index {} is out of range", x);
        return "";
      case Op::extract:
      case Op::insert: {
        const Type vector = operand(i, 0);
        if (vector.elem == Elem::ptr) return "of a pointer";
        if (i.indices.size() != 1 || i.indices[0] < 0 || i.indices[0] >= vector.lanes)
          return "the lane is out of range";
        if (i.op == Op::extract) return must_be("the result", result(i), vector.scalar());
        if (operand(i, 1) != vector.scalar()) return must_be("the scalar", operand(i, 1), vector.scalar());
        return must_be("the result", result(i), vector);
      }
      case Op::reduce: {
        const Type vector = operand(i, 0);
        const bool logic = i.fn == Fn::logical_and || i.fn == Fn::logical_or;
        if (i.fn != Fn::add && i.fn != Fn::mul && i.fn != Fn::max && i.fn != Fn::min && !logic)
          return "is by add, mul, max, min, logical_and or logical_or only";
        if (vector.elem == Elem::ptr || logic != (vector.elem == Elem::boolean)) return "does not fit the element type";
        if ((vector.lanes & (vector.lanes - 1)) != 0) return "the lanes are no power of two";
        return must_be("the result", result(i), vector.scalar());
      }
      case Op::ptr_add:
        if (operand(i, 0) != kPtr || operand(i, 1) != kI64) return "adds an i64 to a ptr";
        return must_be("the result", result(i), kPtr);
      case Op::load:
        if (i.operands.empty() || i.operands.size() > 2) return "takes a pointer and perhaps a count";
        if (operand(i, 0) != kPtr) return must_be("the address", operand(i, 0), kPtr);
        if (i.operands.size() == 2 && operand(i, 1) != kI64) return must_be("the count", operand(i, 1), kI64);
        return must_be("the result", result(i), type_of(i.dtype, result(i).lanes));
      case Op::store:
        if (i.operands.size() < 2 || i.operands.size() > 3) return "takes a value, a pointer and perhaps a count";
        if (operand(i, 1) != kPtr) return must_be("the address", operand(i, 1), kPtr);
        if (i.operands.size() == 3 && operand(i, 2) != kI64) return must_be("the count", operand(i, 2), kI64);
        return must_be("the value", operand(i, 0), type_of(i.dtype, operand(i, 0).lanes));
      case Op::stream: {
        if (operand(i, 1) != kPtr) return must_be("the address", operand(i, 1), kPtr);
        const int64_t bytes = operand(i, 0).lanes * byte_size(i.dtype);
        if (bytes < 16 || bytes > 64 || (bytes & (bytes - 1)) != 0) return "stores a vector of 16, 32 or 64 bytes";
        return must_be("the value", operand(i, 0), type_of(i.dtype, operand(i, 0).lanes));
      }
      case Op::fence: return "";
      case Op::address:
        if (operand(i, 0) != kPtr) return must_be("the address", operand(i, 0), kPtr);
        return must_be("the result", result(i), kI64);
      case Op::load_ptr:
        if (operand(i, 0) != kPtr) return must_be("the address", operand(i, 0), kPtr);
        return must_be("the result", result(i), kPtr);
      case Op::fetch_add:
        if (operand(i, 0) != kPtr || operand(i, 1) != kI64) return "takes a ptr and an i64";
        return must_be("the result", result(i), kI64);
      case Op::gather:
        if (operand(i, 0) != kPtr || operand(i, 1).elem != Elem::i64 ||
            operand(i, 2) != operand(i, 1).with(Elem::boolean))
          return "takes a ptr, i64 indices and as many bools";
        return must_be("the result", result(i), type_of(i.dtype, operand(i, 1).lanes));
      case Op::scatter:
        if (operand(i, 1) != kPtr || operand(i, 2).elem != Elem::i64 ||
            operand(i, 3) != operand(i, 2).with(Elem::boolean))
          return "takes a value, a ptr, i64 indices and as many bools";
        return must_be("the value", operand(i, 0), type_of(i.dtype, operand(i, 2).lanes));
      case Op::prefetch:
        if (i.indices.size() != 1 || i.indices[0] < 0 || i.indices[0] > 3) return "the locality is not 0..3";
        return must_be("the address", operand(i, 0), kPtr);
      case Op::matrix_bf16: {
        if (i.indices.size() != 3) return "takes the tiles of its rows, those of its columns, and whether it adds";
        for (size_t k = 0; k < 3; ++k)
          if (i.indices[k] < (k < 2 ? 1 : 0) || i.indices[k] > (k < 2 ? 2 : 1)) return "has one or two tiles each way";
        for (size_t k = 0; k < 9; ++k) {
          const Type should = k < 6 && k % 2 == 0 ? kPtr : kI64;
          if (operand(i, k) != should) return must_be(fmt::format("operand {}", k), operand(i, k), should);
        }
        return "";
      }
      case Op::for_loop: return for_loop(i, depth);
      case Op::if_else: {
        if (operand(i, 0) != kBool) return must_be("the condition", operand(i, 0), kBool);
        if (i.blocks.size() != 2) return "needs two blocks";
        const std::vector<Type> types = types_of(i.results);
        for (const BlockId b : i.blocks) {
          if (b.index >= f_.blocks.size()) return "a block does not exist";
          if (!f_.blocks[b].arguments.empty()) return "a branch has arguments";
          block(b, &types, depth + 1);
        }
        return "";
      }
      case Op::yield: {
        if (!yields) return "outside a loop or branch";
        if (types_of(i.operands) != *yields) return "the yielded types are not the results' types";
        return "";
      }
    }
    return "";
  }

  std::vector<Type> types_of(const std::vector<Value>& values) const {
    std::vector<Type> out;
    for (const Value v : values) out.push_back(f_.values[v].type);
    return out;
  }

  std::string for_loop(const Inst& i, int depth) {
    if (i.operands.size() < 3) return "needs bounds and a step";
    for (size_t k = 0; k < 3; ++k)
      if (operand(i, k) != kI64) return "bounds and step are i64";
    const ValueInfo& step = f_.values[i.operands[2]];
    if (step.kind == ValueKind::constant && constant_int(step) <= 0) return "the step is not positive";
    const std::vector<Type> types = types_of({i.operands.begin() + 3, i.operands.end()});
    if (types_of(i.results) != types) return "the results' types are not the carried values' types";
    if (i.blocks.size() != 1 || i.blocks[0].index >= f_.blocks.size()) return "needs one block";
    const auto& arguments = f_.blocks[i.blocks[0]].arguments;
    if (arguments.size() != types.size() + 1) return "the block's arguments are not i and the carried values";
    for (size_t k = 0; k < arguments.size(); ++k)
      if (!has_type(arguments[k], k == 0 ? kI64 : types[k - 1])) return "an argument of the block has the wrong type";
    block(i.blocks[0], &types, depth + 1);
    return "";
  }

  std::string apply(const Inst& i) {
    const FnInfo& f = cleave::info(i.fn);
    if (static_cast<int>(i.operands.size()) != f.arity) return fmt::format("takes {} operands", f.arity);
    const bool select = i.fn == Fn::where;
    const Type t = operand(i, i.operands.size() - 1);
    for (size_t k = select ? 1 : 0; k < i.operands.size(); ++k)
      if (operand(i, k) != t) return fmt::format("operand types {} and {} differ", print(operand(i, k)), print(t));
    if (select) {
      if (operand(i, 0) != t.with(Elem::boolean)) return "the condition does not fit";
      return result(i) == t ? "" : "the result's type is not the branches'";
    }
    if (t.elem == Elem::ptr) return "of a pointer";
    if ((f.rule == FnRule::real || f.rule == FnRule::real_test) && !is_float(t.elem)) return "needs a real type";
    if (f.rule == FnRule::logic && t.elem != Elem::boolean) return "needs bools";
    if (f.rule == FnRule::arith && t.elem == Elem::boolean) return "of bools";
    const Type expected = type_of(result_dtype(i.fn, dtype_of(t.elem)), t.lanes);
    return result(i) == expected ? "" : fmt::format("the result is {}, not {}", print(result(i)), print(expected));
  }

  const Function& f_;
  Diagnostics& out_;
  std::vector<bool> defined_;  // in scope
  std::set<uint32_t> blocks_, insts_;
};

}  // namespace

Diagnostics verify(const Module& module) {
  Diagnostics out;
  std::set<std::string_view> names;
  for (const Function& f : module.functions) {
    if (!names.insert(f.name).second) out.push_back(diagnose(Code::duplicate_name, f.name));
    Diagnostics mine;
    Verifier(f, mine).run();
    out.insert(out.end(), mine.begin(), mine.end());
  }
  return out;
}

}  // namespace cleave::vec
