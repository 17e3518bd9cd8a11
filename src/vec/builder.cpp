#include "vec/builder.hpp"

#include <algorithm>
#include <utility>

#include "vec/abi.hpp"

namespace cleave::vec {

namespace {

bool is_scalar_int(Type t) { return t.lanes == 1 && (is_int(t.elem) || t.elem == Elem::boolean); }

}  // namespace

Builder::Builder(Function& function) : f_(function), block_(function.body), shared_(1) {
  for (uint32_t i = 0; i < f_.values.size(); ++i) {
    const ValueInfo& v = f_.values[Value(i)];
    if (v.kind == ValueKind::constant) constants_[{(uint32_t(v.type.elem) << 16) | v.type.lanes, v.bits}] = Value(i);
  }
}

std::vector<Value> Builder::append(Inst inst, std::span<const Type> result_types) {
  const InstId id = f_.insts.add(std::move(inst));
  std::vector<Value> results;
  for (const Type t : result_types) results.push_back(f_.values.add({t, ValueKind::result, id, {}, 0}));
  f_.insts[id].results = results;
  f_.blocks[block_].insts.push_back(id);
  return results;
}

Value Builder::emit(Inst inst, Type result) {
  // Equal scalar integer and address computations in scope are shared; vectors are not, sharing them would lengthen
  // live ranges behind the back of whoever planned the registers.
  const bool share = info(inst.op).pure && result.lanes == 1 && !is_float(result.elem);
  std::vector<uint64_t> key;
  if (share) {
    key = {uint64_t(inst.op), uint64_t(inst.fn), (uint64_t(result.elem) << 16) | result.lanes};
    for (const Value v : inst.operands) key.push_back(v.index);
    for (const int32_t i : inst.indices) key.push_back(static_cast<uint64_t>(i));
    for (auto& scope : shared_)
      if (auto it = scope.find(key); it != scope.end()) return it->second;
  }
  const Value v = append(std::move(inst), {&result, 1})[0];
  if (share) shared_.back()[std::move(key)] = v;
  return v;
}

Value Builder::constant(Type type, uint64_t bits) {
  auto [it, added] = constants_.try_emplace({(uint32_t(type.elem) << 16) | type.lanes, bits});
  if (added) it->second = f_.values.add({type, ValueKind::constant, {}, {}, bits});
  return it->second;
}

Value Builder::integer(Type type, int64_t value) {
  CHECK(is_int(type.elem) || type.elem == Elem::boolean, "{}", print(type));
  return constant(type, static_cast<uint64_t>(wrap_to(dtype_of(type.elem), value)));
}

Value Builder::real(Type type, double value) {
  CHECK(is_float(type.elem), "{}", print(type));
  return constant(type, real_bits(type.elem, value));
}

std::optional<int64_t> Builder::known(Value v) const {
  const ValueInfo& i = f_.values[v];
  if (i.kind != ValueKind::constant || is_float(i.type.elem)) return std::nullopt;
  return constant_int(i);
}

// Makes a value at the start of the body, once.
Value Builder::at_entry(std::array<int, 3> key, const std::function<Value()>& make) {
  if (auto it = entry_.find(key); it != entry_.end()) return it->second;
  // Nothing is shared with computations further down, which do not dominate the entry.
  std::vector<std::map<std::vector<uint64_t>, Value>> hidden(1);
  std::swap(shared_, hidden);
  const BlockId block = std::exchange(block_, f_.body);
  size_t before = f_.blocks[f_.body].insts.size();
  const size_t entry_end = entry_end_;
  const Value v = make();
  before += entry_end_ - entry_end;  // what `make` itself asked for at the start
  auto& insts = f_.blocks[f_.body].insts;
  const size_t made = insts.size() - before;
  std::rotate(insts.begin() + static_cast<std::ptrdiff_t>(entry_end_),
              insts.begin() + static_cast<std::ptrdiff_t>(before), insts.end());
  entry_end_ += made;
  block_ = block;
  std::swap(shared_, hidden);
  return entry_[key] = v;
}

Value Builder::tensor_data(int tensor) {
  return at_entry({0, tensor, 0}, [&] {
    return load_ptr(ptr_add(load_ptr(ptr_add(call(), abi::kTensors)), tensor * abi::kTensorBytes + abi::kTensorData));
  });
}
Value Builder::tensor_stride(int tensor, int axis) {
  return at_entry({1, tensor, axis}, [&] {
    const Value tensors = load_ptr(ptr_add(call(), abi::kTensors));
    return load_i64(ptr_add(load_ptr(ptr_add(tensors, tensor * abi::kTensorBytes + abi::kTensorStrides)), 8 * axis));
  });
}
Value Builder::extent(int index) {
  return at_entry({2, index, 0},
                  [&] { return load_i64(ptr_add(load_ptr(ptr_add(call(), abi::kExtents)), 8 * index)); });
}
Value Builder::scalar_argument(int index) {
  return at_entry({3, index, 0},
                  [&] { return load(ptr_add(load_ptr(ptr_add(call(), abi::kScalars)), 8 * index), DType::f64); });
}
Value Builder::workspace() {
  return at_entry({4, 0, 0}, [&] { return load_ptr(ptr_add(call(), abi::kWorkspace)); });
}

// Splats scalars beside vectors.
std::vector<Value> Builder::matched(std::span<const Value> x) {
  int wide = 1;
  for (const Value v : x) wide = std::max(wide, lanes(v));
  std::vector<Value> out;
  for (const Value v : x) {
    CHECK(lanes(v) == 1 || lanes(v) == wide, "{} lanes beside {}", lanes(v), wide);
    out.push_back(lanes(v) == wide ? v : splat(v, wide));
  }
  return out;
}

// Folds integer scalars: constants, neutral and absorbing operands, (x + c) + d. Invalid when nothing applies.
Value Builder::fold(Fn fn, std::span<const Value> x) {
  if (fn == Fn::where) {
    if (auto c = known(x[0]); c && lanes(x[0]) == 1) return *c ? x[1] : x[2];
    if (x[1] == x[2]) return x[1];
    return {};
  }
  for (const Value v : x)
    if (!is_scalar_int(type(v))) return {};
  const DType dtype = dtype_of(type(x[0]).elem);
  std::vector<int64_t> constants;
  for (const Value v : x)
    if (auto c = known(v)) constants.push_back(*c);
  if (constants.size() == x.size()) {
    const DType result = result_dtype(fn, dtype);
    return integer(type_of(result, 1), wrap_to(result, eval(fn, std::span<const int64_t>(constants))));
  }
  if (x.size() != 2) return {};
  const auto a = known(x[0]), b = known(x[1]);
  switch (fn) {
    case Fn::add:
      if (a) return apply(fn, {x[1], x[0]});  // the constant goes right
      if (b && *b == 0) return x[0];
      if (const Inst* d = f_.definition(x[0]); b && d && d->op == Op::apply && d->fn == Fn::add)
        if (auto c = known(d->operands[1])) {
          const Value base = d->operands[0];
          return apply(fn, {base, integer(type(x[0]), static_cast<int64_t>(uint64_t(*b) + uint64_t(*c)))});
        }
      return {};
    case Fn::sub:
      if (x[0] == x[1]) return integer(type(x[0]), 0);
      if (b) return apply(Fn::add, {x[0], integer(type(x[0]), static_cast<int64_t>(-uint64_t(*b)))});
      return {};
    case Fn::mul:
      if (a) return apply(fn, {x[1], x[0]});
      if (b && *b == 0) return x[1];
      if (b && *b == 1) return x[0];
      return {};
    case Fn::div:
    case Fn::floordiv: return b && *b == 1 ? x[0] : Value{};
    case Fn::mod: return b && *b == 1 ? integer(type(x[0]), 0) : Value{};
    case Fn::min:
    case Fn::max: return x[0] == x[1] ? x[0] : Value{};
    case Fn::eq:
    case Fn::le:
    case Fn::ge: return x[0] == x[1] ? boolean(true) : Value{};
    case Fn::ne:
    case Fn::lt:
    case Fn::gt: return x[0] == x[1] ? boolean(false) : Value{};
    case Fn::logical_and:
      if (a) return *a ? x[1] : x[0];
      if (b) return *b ? x[0] : x[1];
      return {};
    case Fn::logical_or:
      if (a) return *a ? x[0] : x[1];
      if (b) return *b ? x[1] : x[0];
      return {};
    default: return {};
  }
}

Value Builder::apply(Fn fn, std::span<const Value> x) {
  const FnInfo& f = cleave::info(fn);
  CHECK(static_cast<int>(x.size()) == f.arity, "`{}` with {} operands", f.name, x.size());
  if (const Value folded = fold(fn, x); folded.valid()) return folded;
  std::vector<Value> operands = matched(x);
  const Type t = type(operands.back());
  for (size_t i = fn == Fn::where ? 1 : 0; i < operands.size(); ++i)
    CHECK(type(operands[i]) == t, "`{}` of {} and {}", f.name, print(type(operands[i])), print(t));
  if (fn == Fn::where) CHECK(type(operands[0]).elem == Elem::boolean, "{}", print(type(operands[0])));
  if (f.rule == FnRule::real || f.rule == FnRule::real_test) CHECK(is_float(t.elem), "`{}` of {}", f.name, print(t));
  if (f.rule == FnRule::logic) CHECK(t.elem == Elem::boolean, "`{}` of {}", f.name, print(t));
  const Type result = t.elem == Elem::ptr ? t : type_of(result_dtype(fn, dtype_of(t.elem)), t.lanes);
  Inst inst{Op::apply, fn};
  inst.operands = std::move(operands);
  return emit(std::move(inst), result);
}

Value Builder::fma(Value a, Value b, Value c) {
  const std::vector<Value> x = matched(std::vector<Value>{a, b, c});
  CHECK(is_float(type(x[0]).elem) && type(x[0]) == type(x[1]) && type(x[0]) == type(x[2]), "fma of {} {} {}",
        print(type(x[0])), print(type(x[1])), print(type(x[2])));
  Inst inst{Op::fma};
  inst.operands = x;
  return emit(std::move(inst), type(x[0]));
}

Value Builder::cast(Value v, Elem to) {
  const Type t = type(v);
  CHECK(t.elem != Elem::ptr && to != Elem::ptr, "pointers are not cast");
  if (t.elem == to) return v;
  if (auto c = known(v)) {
    if (is_float(to)) return real(t.with(to), static_cast<double>(*c));
    return integer(t.with(to), *c);
  }
  Inst inst{Op::cast};
  inst.operands = {v};
  return emit(std::move(inst), t.with(to));
}

Value Builder::bitcast(Value v, Elem to) {
  const Type t = type(v);
  CHECK(bit_width(t.elem) == bit_width(to) && t.elem != Elem::ptr && to != Elem::ptr, "bitcast of {}", print(t));
  if (t.elem == to) return v;
  Inst inst{Op::bitcast};
  inst.operands = {v};
  return emit(std::move(inst), t.with(to));
}

Value Builder::bits(Op op, Value a, Value b) {
  const std::vector<Value> x = matched(std::vector<Value>{a, b});
  CHECK(type(x[0]) == type(x[1]) && is_int(type(x[0]).elem), "{} of {} and {}", info(op).name, print(type(a)),
        print(type(b)));
  Inst inst{op};
  inst.operands = x;
  return emit(std::move(inst), type(x[0]));
}

Value Builder::splat(Value scalar, int lanes) {
  const Type t = type(scalar);
  CHECK(t.lanes == 1 && t.elem != Elem::ptr && lanes >= 1 && lanes <= kMaxLanes, "splat of {}", print(t));
  if (lanes == 1) return scalar;
  const Type wide{t.elem, static_cast<uint16_t>(lanes)};
  if (f_.is_constant(scalar)) return constant(wide, f_.values[scalar].bits);
  Inst inst{Op::splat};
  inst.operands = {scalar};
  return emit(std::move(inst), wide);
}

Value Builder::iota(int lanes, Elem elem) {
  CHECK(is_int(elem), "iota");
  if (lanes == 1) return integer({elem, 1}, 0);
  return emit(Inst{Op::iota}, {elem, static_cast<uint16_t>(lanes)});
}

Value Builder::shuffle(Value a, Value b, std::vector<int32_t> indices) {
  CHECK(type(a) == type(b) && !indices.empty(), "shuffle of {} and {}", print(type(a)), print(type(b)));
  for (const int32_t i : indices) CHECK(i >= 0 && i < 2 * lanes(a), "shuffle index {}", i);
  const Type t{type(a).elem, static_cast<uint16_t>(indices.size())};
  if (f_.is_constant(a) && a == b) return constant(t, f_.values[a].bits);
  if (t.lanes == 1) return extract(indices[0] < lanes(a) ? a : b, indices[0] % lanes(a));
  Inst inst{Op::shuffle};
  inst.operands = {a, b};
  inst.indices = std::move(indices);
  return emit(std::move(inst), t);
}

Value Builder::slice(Value v, int first, int count) {
  if (first == 0 && count == lanes(v)) return v;
  std::vector<int32_t> indices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = first + i;
  return shuffle(v, v, std::move(indices));
}

Value Builder::concat(Value a, Value b) {
  std::vector<int32_t> indices(static_cast<size_t>(2 * lanes(a)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i);
  return shuffle(a, b, std::move(indices));
}

Value Builder::extract(Value v, int lane) {
  CHECK(lane >= 0 && lane < lanes(v), "lane {} of {}", lane, print(type(v)));
  if (lanes(v) == 1) return v;
  if (f_.is_constant(v)) return constant(type(v).scalar(), f_.values[v].bits);
  if (const Inst* d = f_.definition(v); d && d->op == Op::splat) return d->operands[0];
  Inst inst{Op::extract};
  inst.operands = {v};
  inst.indices = {lane};
  return emit(std::move(inst), type(v).scalar());
}

Value Builder::insert(Value v, Value scalar, int lane) {
  CHECK(lane >= 0 && lane < lanes(v) && type(scalar) == type(v).scalar(), "lane {} of {}", lane, print(type(v)));
  if (lanes(v) == 1) return scalar;
  Inst inst{Op::insert};
  inst.operands = {v, scalar};
  inst.indices = {lane};
  return emit(std::move(inst), type(v));
}

Value Builder::reduce(Fn fn, Value v) {
  CHECK(
      fn == Fn::add || fn == Fn::mul || fn == Fn::max || fn == Fn::min || fn == Fn::logical_and || fn == Fn::logical_or,
      "reduce by `{}`", cleave::info(fn).name);
  CHECK((lanes(v) & (lanes(v) - 1)) == 0, "{} lanes are no power of two", lanes(v));
  if (lanes(v) == 1) return v;
  Inst inst{Op::reduce, fn};
  inst.operands = {v};
  return emit(std::move(inst), type(v).scalar());
}

Value Builder::ptr_add(Value ptr, Value bytes) {
  CHECK(type(ptr) == kPtr && type(bytes) == kI64, "ptr_add of {} and {}", print(type(ptr)), print(type(bytes)));
  const auto n = known(bytes);
  if (n && *n == 0) return ptr;
  if (const Inst* d = f_.definition(ptr); n && d && d->op == Op::ptr_add)
    if (auto m = known(d->operands[1])) {
      const Value base = d->operands[0];
      return ptr_add(base, i64(*n + *m));
    }
  Inst inst{Op::ptr_add};
  inst.operands = {ptr, bytes};
  return emit(std::move(inst), kPtr);
}

Value Builder::element(Value ptr, Value index, DType dtype) { return ptr_add(ptr, mul(index, i64(byte_size(dtype)))); }

Value Builder::load(Value ptr, DType dtype, int lanes, Value count) {
  CHECK(type(ptr) == kPtr && lanes >= 1 && lanes <= kMaxLanes, "load of {} lanes", lanes);
  Inst inst{Op::load};
  inst.dtype = dtype;
  inst.operands = {ptr};
  const Type t = type_of(dtype, lanes);
  if (count.valid()) {
    const auto n = known(count);
    if (n && *n <= 0) return zero(t);
    if (!n || *n < lanes) inst.operands.push_back(count);
  }
  return append(std::move(inst), {&t, 1})[0];
}

void Builder::store(Value value, Value ptr, DType dtype, Value count) {
  CHECK(type(ptr) == kPtr && type(value).elem == elem_of(dtype), "store of {} as {}", print(type(value)), name(dtype));
  Inst inst{Op::store};
  inst.dtype = dtype;
  inst.operands = {value, ptr};
  if (count.valid()) {
    const auto n = known(count);
    if (n && *n <= 0) return;
    if (!n || *n < lanes(value)) inst.operands.push_back(count);
  }
  append(std::move(inst), {});
}

Value Builder::load_ptr(Value ptr) {
  CHECK(type(ptr) == kPtr, "load_ptr");
  Inst inst{Op::load_ptr};
  inst.operands = {ptr};
  return append(std::move(inst), {&kPtr, 1})[0];
}

Value Builder::fetch_add(Value ptr, Value addend) {
  CHECK(type(ptr) == kPtr && type(addend) == kI64, "fetch_add");
  Inst inst{Op::fetch_add};
  inst.operands = {ptr, addend};
  return append(std::move(inst), {&kI64, 1})[0];
}

Value Builder::gather(Value base, Value indices, DType dtype, Value mask) {
  if (!mask.valid()) mask = boolean(true, lanes(indices));
  CHECK(type(base) == kPtr && type(indices).elem == Elem::i64 && type(mask) == type(indices).with(Elem::boolean),
        "gather");
  Inst inst{Op::gather};
  inst.dtype = dtype;
  inst.operands = {base, indices, mask};
  const Type t = type_of(dtype, lanes(indices));
  return append(std::move(inst), {&t, 1})[0];
}

void Builder::scatter(Value value, Value base, Value indices, DType dtype, Value mask) {
  if (!mask.valid()) mask = boolean(true, lanes(indices));
  CHECK(type(base) == kPtr && type(indices).elem == Elem::i64 && type(mask) == type(indices).with(Elem::boolean) &&
            type(value) == type_of(dtype, lanes(indices)),
        "scatter");
  Inst inst{Op::scatter};
  inst.dtype = dtype;
  inst.operands = {value, base, indices, mask};
  append(std::move(inst), {});
}

void Builder::matrix_bf16(std::span<const Value> operands, int row_tiles, int column_tiles, bool add) {
  Inst inst{Op::matrix_bf16};
  inst.operands.assign(operands.begin(), operands.end());
  inst.indices = {row_tiles, column_tiles, add ? 1 : 0};
  append(std::move(inst), {});
}
Value Builder::address(Value ptr) {
  CHECK(type(ptr) == kPtr, "address");
  Inst inst{Op::address};
  inst.operands = {ptr};
  return append(std::move(inst), {&kI64, 1})[0];
}

void Builder::stream(Value value, Value ptr, DType dtype) {
  CHECK(type(ptr) == kPtr && type(value).elem == elem_of(dtype), "stream of {} as {}", print(type(value)), name(dtype));
  Inst inst{Op::stream};
  inst.dtype = dtype;
  inst.operands = {value, ptr};
  append(std::move(inst), {});
}

void Builder::fence() { append(Inst{Op::fence}, {}); }

void Builder::prefetch(Value ptr, int locality) {
  CHECK(type(ptr) == kPtr && locality >= 0 && locality <= 3, "prefetch");
  Inst inst{Op::prefetch};
  inst.operands = {ptr};
  inst.indices = {locality};
  append(std::move(inst), {});
}

BlockId Builder::open_block(std::span<const Type> arguments) {
  const BlockId block = f_.blocks.add({});
  for (const Type t : arguments)
    f_.blocks[block].arguments.push_back(f_.values.add({t, ValueKind::argument, {}, block, 0}));
  block_ = block;
  shared_.emplace_back();
  return block;
}

void Builder::close_block(const std::vector<Value>& yielded, BlockId outer) {
  Inst inst{Op::yield};
  inst.operands = yielded;
  append(std::move(inst), {});
  shared_.pop_back();
  block_ = outer;
}

std::vector<Value> Builder::for_loop(Value lo, Value hi, Value step, std::span<const Value> inits,
                                     const LoopBody& body) {
  CHECK(type(lo) == kI64 && type(hi) == kI64 && type(step) == kI64, "loop bounds are i64");
  const auto l = known(lo), h = known(hi), s = known(step);
  if (s) CHECK(*s > 0, "a loop with step {}", *s);
  if (l && h && *l >= *h) return {inits.begin(), inits.end()};
  if (l && h && s && *h - *l <= *s) return body(lo, inits);
  std::vector<Type> carried;
  for (const Value v : inits) carried.push_back(type(v));
  std::vector<Type> arguments = {kI64};
  arguments.insert(arguments.end(), carried.begin(), carried.end());

  const BlockId outer = block_;
  const BlockId block = open_block(arguments);
  const std::vector<Value> values = f_.blocks[block].arguments;
  const std::vector<Value> next = body(values[0], std::span<const Value>(values).subspan(1));
  CHECK(next.size() == inits.size(), "the body yields {} values, {} are carried", next.size(), inits.size());
  for (size_t i = 0; i < next.size(); ++i)
    CHECK(type(next[i]) == carried[i], "carried value {}: {} becomes {}", i, print(carried[i]), print(type(next[i])));
  close_block(next, outer);

  Inst inst{Op::for_loop};
  inst.operands = {lo, hi, step};
  inst.operands.insert(inst.operands.end(), inits.begin(), inits.end());
  inst.blocks = {block};
  return append(std::move(inst), carried);
}

void Builder::for_each(Value lo, Value hi, Value step, const std::function<void(Value)>& body) {
  for_loop(lo, hi, step, std::span<const Value>{}, [&](Value i, std::span<const Value>) {
    body(i);
    return std::vector<Value>{};
  });
}

std::vector<Value> Builder::if_else(Value condition, const Branch& then, const Branch& otherwise) {
  CHECK(type(condition) == kBool, "a condition of type {}", print(type(condition)));
  if (auto c = known(condition)) return *c ? then() : otherwise();
  const BlockId outer = block_;
  const BlockId a = open_block({});
  const std::vector<Value> x = then();
  close_block(x, outer);
  const BlockId b = open_block({});
  const std::vector<Value> y = otherwise();
  close_block(y, outer);
  CHECK(x.size() == y.size(), "the branches yield {} and {} values", x.size(), y.size());
  std::vector<Type> types;
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK(type(x[i]) == type(y[i]), "the branches yield {} and {}", print(type(x[i])), print(type(y[i])));
    types.push_back(type(x[i]));
  }
  Inst inst{Op::if_else};
  inst.operands = {condition};
  inst.blocks = {a, b};
  return append(std::move(inst), types);
}

void Builder::if_then(Value condition, const std::function<void()>& then) {
  if_else(
      condition,
      [&] {
        then();
        return std::vector<Value>{};
      },
      [] { return std::vector<Value>{}; });
}

}  // namespace cleave::vec
