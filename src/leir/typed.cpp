#include "leir/typed.hpp"

#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/codes.hpp"
#include "types/scalar.hpp"

namespace cleave::leir {

Class class_of_values(Type type) {
  switch (type) {
    case Type::f64: return Class::f64;
    case Type::f32:
    case Type::f16:
    case Type::bf16: return Class::f32;
    case Type::u64: return Class::unsigned_integer;
    case Type::boolean: return Class::boolean;
    default: return Class::integer;
  }
}

const char* name(Class c) {
  constexpr const char* kNames[] = {"bool", "i64", "u64", "f32", "f64"};
  return kNames[static_cast<size_t>(c)];
}

namespace {

// max and min order -0 below +0.
double larger(double a, double b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double smaller(double a, double b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

Fn scalar_function(Function f) {
  const auto fn = fn_from_name(info(f).name);
  CHECK(fn, "{} has no scalar function", info(f).name);
  return *fn;
}

// Functions that integers have too.
bool integers_too(Function f) {
  switch (f) {
    case Function::abs:
    case Function::max:
    case Function::min:
    case Function::clamp:
    case Function::sign:
    case Function::square:
    case Function::relu: return true;
    default: return false;
  }
}

// What a subtree is before it meets another: a literal without a type, or a class.
struct Value {
  bool literal = false;
  bool whole = false;  // literal: an integer
  int64_t integer = 0;
  double real = 0;
  Class cls = Class::integer;
  NodeId node = kNone;
  double as_real() const { return whole ? static_cast<double>(integer) : real; }
};

class Typer {
 public:
  Typer(const Program& p, Precision precision, Class target)
      : p_(p), s_(p.syntax()), precision_(precision), real_(is_real(target) ? widen(target) : Class::f64) {}

  // The value of a tree; nodes are made for it as it goes.
  std::optional<Value> value(ExprId root) {
    std::vector<std::pair<ExprId, bool>> work = {{root, false}};
    std::vector<Value> stack;
    while (!work.empty()) {
      const auto [id, ready] = work.back();
      work.pop_back();
      if (!ready) {
        work.push_back({id, true});
        const auto o = s_.operands_of(id);
        for (size_t i = o.size(); i-- > 0;) work.push_back({o[i], false});
        continue;
      }
      const size_t n = s_.exprs[id].count;
      args_.assign(stack.end() - static_cast<ptrdiff_t>(n), stack.end());
      stack.resize(stack.size() - n);
      stack.push_back(combine(id));
      if (!bad_.empty()) return std::nullopt;
    }
    return stack.back();
  }

  NodeId materialise(const Value& v, Class to) {
    if (v.literal) {
      Node n;
      n.cls = to;
      if (leir::is_real(to)) {
        n.act = Act::real;
        n.real = to == Class::f32 ? static_cast<double>(static_cast<float>(v.as_real())) : v.as_real();
      } else {
        n.act = Act::integer;
        n.integer = v.whole ? v.integer : leir::real_to_integer(Type::i64, v.real);
        if (to == Class::boolean) n.integer = v.whole ? v.integer != 0 : v.real != 0;
      }
      return add(n, {});
    }
    if (v.cls == to) return v.node;
    Node n;
    n.act = Act::convert;
    n.cls = to;
    return add(n, {{v.node}});
  }

  Typed take() { return std::move(out_); }
  Typed& out() { return out_; }
  Diagnostics& errors() { return bad_; }
  Class widen(Class c) const { return precision_ == Precision::f64 && c == Class::f32 ? Class::f64 : c; }
  void refuse(ExprId at, const std::string& why) {
    if (bad_.empty()) bad_.push_back(diagnose_at(s_.exprs[at].range, Code::leir_type, why));
  }
  NodeId node_of(ExprId e) const {
    const auto it = node_of_.find(e);
    return it == node_of_.end() ? kNone : it->second;
  }
  void access_of(ExprId e, uint32_t access) { access_[e] = access; }

 private:
  NodeId add(Node n, std::span<const NodeId> operands) {
    n.first = static_cast<uint32_t>(out_.operands.size());
    n.count = static_cast<uint32_t>(operands.size());
    out_.operands.insert(out_.operands.end(), operands.begin(), operands.end());
    out_.nodes.push_back(n);
    return static_cast<NodeId>(out_.nodes.size() - 1);
  }
  Value made(Node n, std::span<const NodeId> operands) {
    Value v;
    v.cls = n.cls;
    v.node = add(n, operands);
    return v;
  }
  static Value whole(int64_t i) { return {.literal = true, .whole = true, .integer = i}; }
  static Value number(double d) { return {.literal = true, .real = d}; }
  static Value truth(bool b) { return whole(b); }

  // D13: the class of an operation on these operands; literals adopt it.
  std::optional<Class> common(ExprId at, std::span<const Value> from) {
    std::optional<Class> c;
    bool real_literal = false, infinite = false, all_literals = true;
    for (const Value& v : from) {
      if (v.literal) {
        real_literal = real_literal || !v.whole;
        infinite = infinite || (!v.whole && std::isinf(v.real));
        continue;
      }
      all_literals = false;
      const Class mine = v.cls == Class::boolean ? Class::integer : v.cls;
      if (!c) {
        c = mine;
      } else if ((*c == Class::unsigned_integer) != (mine == Class::unsigned_integer) && !leir::is_real(*c) &&
                 !leir::is_real(mine)) {
        refuse(at, "u64 does not meet signed integers, indices or bool");
        return std::nullopt;
      } else {
        c = std::max(*c, mine);
      }
    }
    if (all_literals) return real_;
    if (!leir::is_real(*c) && infinite) {
      refuse(at, "`inf` does not meet integers");
      return std::nullopt;
    }
    if (!leir::is_real(*c) && real_literal) return real_;
    return c;
  }
  Class real_of(Class c) const { return leir::is_real(c) ? c : real_; }

  Value operation(Act act, Class cls, Class result, std::span<const Value> from, Function f = Function::exp,
                  Comparison cmp = Comparison::lt) {
    std::vector<NodeId> nodes;
    for (const Value& v : from) nodes.push_back(materialise(v, cls));
    Node n;
    n.act = act;
    n.cls = result;
    n.function = f;
    n.comparison = cmp;
    return made(n, nodes);
  }

  bool all_literal() const {
    for (const Value& v : args_)
      if (!v.literal) return false;
    return true;
  }

  Value combine(ExprId id) {
    const Expr& e = s_.exprs[id];
    switch (e.op) {
      case Op::integer: return whole(e.integer);
      case Op::real: return number(e.real);
      case Op::infinity: return number(std::numeric_limits<double>::infinity());
      case Op::index: {
        Node n;
        n.act = Act::index;
        n.meaning = p_.meaning(id);
        return made(n, {});
      }
      case Op::tensor: return load(id);
      case Op::call: return call(id);
      case Op::negate: {
        if (all_literal()) {
          const Value& v = args_[0];
          return v.whole ? whole(static_cast<int64_t>(-static_cast<uint64_t>(v.integer))) : number(-v.real);
        }
        const auto c = common(id, args_);
        return c ? operation(Act::negate, *c, *c, args_) : Value{};
      }
      case Op::power: return raise(id);
      case Op::compare: return compare(id);
      case Op::logical_and:
      case Op::logical_or: {
        if (all_literal()) {
          const bool a = args_[0].as_real() != 0, b = args_[1].as_real() != 0;
          return truth(e.op == Op::logical_and ? a && b : a || b);
        }
        return operation(e.op == Op::logical_and ? Act::logical_and : Act::logical_or, Class::boolean, Class::boolean,
                         args_);
      }
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::div:
      case Op::floordiv:
      case Op::mod: return arithmetic(id);
    }
    return {};
  }

  Value arithmetic(ExprId id) {
    const Op op = s_.exprs[id].op;
    const bool integral = op == Op::floordiv || op == Op::mod;
    if (all_literal()) return fold(id, op, args_[0], args_[1]);
    const auto c = common(id, args_);
    if (!c) return {};
    if (integral && leir::is_real(*c)) {
      refuse(id, fmt::format("`{}` is for integers", text(op)));
      return {};
    }
    switch (op) {
      case Op::add: return operation(Act::add, *c, *c, args_);
      case Op::sub: return operation(Act::sub, *c, *c, args_);
      case Op::mul: return operation(Act::mul, *c, *c, args_);
      case Op::div: return operation(Act::div, real_of(*c), real_of(*c), args_);
      case Op::floordiv: return operation(Act::floordiv, *c, *c, args_);
      default: return operation(Act::mod, *c, *c, args_);
    }
  }

  Value fold(ExprId id, Op op, const Value& a, const Value& b) {
    if (op == Op::floordiv || op == Op::mod) {
      if (!a.whole || !b.whole || b.integer == 0) {
        refuse(id, b.whole && b.integer == 0 ? "division by 0" : fmt::format("`{}` is for integers", text(op)));
        return {};
      }
      const int64_t both[] = {a.integer, b.integer};
      return whole(eval(op == Op::mod ? Fn::mod : Fn::floordiv, std::span<const int64_t>(both)));
    }
    if (a.whole && b.whole && op != Op::div) {
      const __int128 x = a.integer, y = b.integer;
      const __int128 r = op == Op::add ? x + y : op == Op::sub ? x - y : x * y;
      if (r <= std::numeric_limits<int64_t>::max() && r > std::numeric_limits<int64_t>::min())
        return whole(static_cast<int64_t>(r));
      return number(static_cast<double>(r));
    }
    if (op == Op::div && a.whole && b.whole && b.integer != 0 && a.integer % b.integer == 0)
      return whole(a.integer / b.integer);
    const double x = a.as_real(), y = b.as_real();
    return number(op == Op::add ? x + y : op == Op::sub ? x - y : op == Op::mul ? x * y : x / y);
  }

  Value raise(ExprId id) {
    const Value base = args_[0], exponent = args_[1];
    if (all_literal()) {
      if (base.whole && exponent.whole && exponent.integer >= 0 && exponent.integer <= 62) {
        __int128 r = 1;
        bool fits = true;
        for (int64_t i = 0; i < exponent.integer && fits; ++i) {
          r *= base.integer;
          fits = r < std::numeric_limits<int64_t>::max() && r > std::numeric_limits<int64_t>::min();
        }
        if (fits) return whole(static_cast<int64_t>(r));
      }
      return number(exponent.whole || exponent.real != 0.5 ? std::pow(base.as_real(), exponent.as_real())
                                                           : std::sqrt(base.as_real()));
    }
    const auto c = common(id, args_);
    if (!c) return {};
    if (exponent.literal && exponent.whole && exponent.integer >= -64 && exponent.integer <= 64) {
      Class cls = base.cls == Class::boolean ? Class::integer : base.cls;
      if (exponent.integer < 0) cls = real_of(cls);
      Node n;
      n.act = Act::power;
      n.cls = cls;
      n.integer = exponent.integer;
      const NodeId b = materialise(base, cls);
      return made(n, {{b}});
    }
    if (exponent.literal && !exponent.whole && exponent.real == 0.5) {
      const Class cls = real_of(base.cls);
      args_.resize(1);
      return operation(Act::call, cls, cls, args_, Function::sqrt);
    }
    return operation(Act::raise, *c, *c, args_);
  }

  Value compare(ExprId id) {
    const auto by = s_.comparisons_of(id);
    const std::vector<Value> from = args_;
    std::optional<Value> all;
    for (size_t i = 0; i < by.size(); ++i) {
      const Value two[] = {from[i], from[i + 1]};
      Value v;
      if (two[0].literal && two[1].literal) {
        const double x[] = {two[0].as_real(), two[1].as_real()};
        constexpr Fn kFns[] = {Fn::lt, Fn::le, Fn::gt, Fn::ge, Fn::eq, Fn::ne};
        v = truth(eval(kFns[static_cast<size_t>(by[i])], std::span<const double>(x)) != 0);
      } else {
        const auto c = common(id, two);
        if (!c) return {};
        v = operation(Act::compare, *c, Class::boolean, two, Function::exp, by[i]);
      }
      if (!all) {
        all = v;
      } else if (all->literal && v.literal) {
        all = truth(all->integer && v.integer);
      } else {
        // All operands are evaluated: a middle one is shared by two tests, and must not stand in a branch.
        const Value two_tests[] = {*all, v};
        all = operation(Act::mul, Class::integer, Class::integer, two_tests);
      }
    }
    if (!all->literal && all->cls != Class::boolean) {
      all->node = materialise(*all, Class::boolean);
      all->cls = Class::boolean;
    }
    return *all;
  }

  Value call(ExprId id) {
    const Function f = s_.exprs[id].function;
    if (f == Function::if_then_else) {
      if (all_literal()) return args_[0].as_real() != 0 ? args_[1] : args_[2];
      const Value branches[] = {args_[1], args_[2]};
      Class c = real_;
      if (branches[0].literal && branches[1].literal) {
        c = branches[0].whole && branches[1].whole ? Class::integer : real_;
      } else {
        const bool booleans = !branches[0].literal && !branches[1].literal && branches[0].cls == Class::boolean &&
                              branches[1].cls == Class::boolean;
        const auto common_class = common(id, branches);
        if (!common_class) return {};
        c = booleans ? Class::boolean : *common_class;
      }
      const NodeId nodes[] = {materialise(args_[0], Class::boolean), materialise(branches[0], c),
                              materialise(branches[1], c)};
      Node n;
      n.act = Act::select;
      n.cls = c;
      return made(n, nodes);
    }
    if (all_literal()) {
      std::vector<double> x;
      bool integers = integers_too(f);
      for (const Value& v : args_) {
        x.push_back(v.as_real());
        integers = integers && v.whole;
      }
      const double r = evaluate(f, x);
      return integers && std::fabs(r) < 0x1p53 ? whole(static_cast<int64_t>(r)) : number(r);
    }
    const auto c = common(id, args_);
    if (!c) return {};
    const Class cls = integers_too(f) ? *c : real_of(*c);
    const bool test = f == Function::isnan || f == Function::isinf;
    return operation(Act::call, cls, test ? Class::boolean : cls, args_, f);
  }

  Value load(ExprId id) {
    std::vector<NodeId> subscripts;
    const auto from = args_;
    for (const Value& v : from) {
      if ((!v.literal && leir::is_real(v.cls)) || (v.literal && !v.whole)) {
        refuse(id, "a subscript is no integer");
        return {};
      }
      subscripts.push_back(materialise(v, Class::integer));
    }
    const auto it = access_.find(id);
    Node n;
    n.act = Act::load;
    n.cls = widen(class_of_values(s_.exprs[id].type));
    n.meaning = it == access_.end() ? kNone : it->second;
    n.variable = p_.meaning(id);
    Value v = made(n, subscripts);
    node_of_[id] = v.node;
    return v;
  }

  const Program& p_;
  const Syntax& s_;
  Precision precision_;
  Class real_;  // what integers become where they meet a real literal or `/`
  std::vector<Value> args_;
  Typed out_;
  Diagnostics bad_;
  std::unordered_map<ExprId, NodeId> node_of_;
  std::unordered_map<ExprId, uint32_t> access_;
};

}  // namespace

double evaluate(Function f, std::span<const double> x) {
  switch (f) {
    case Function::max: return larger(x[0], x[1]);
    case Function::min: return smaller(x[0], x[1]);
    case Function::clamp: return smaller(larger(x[0], x[1]), x[2]);
    case Function::relu: return larger(x[0], 0.0);
    case Function::fma: return std::fma(x[0], x[1], x[2]);
    default: return eval(scalar_function(f), x);
  }
}

int64_t evaluate(Function f, std::span<const int64_t> x, bool is_unsigned) {
  if (!is_unsigned) return eval(scalar_function(f), x);
  const auto less = [&](int64_t a, int64_t b) { return static_cast<uint64_t>(a) < static_cast<uint64_t>(b); };
  switch (f) {
    case Function::max: return less(x[0], x[1]) ? x[1] : x[0];
    case Function::min: return less(x[1], x[0]) ? x[1] : x[0];
    case Function::clamp: {
      const int64_t low = less(x[0], x[1]) ? x[1] : x[0];
      return less(x[2], low) ? x[2] : low;
    }
    case Function::relu:
    case Function::abs: return x[0];
    case Function::sign: return x[0] != 0;
    default: return eval(scalar_function(f), x);
  }
}

double power(double base, int64_t exponent, bool single) {
  auto round = [&](double v) { return single ? static_cast<double>(static_cast<float>(v)) : v; };
  double result = 1, square = base;
  for (auto e = static_cast<uint64_t>(exponent < 0 ? -exponent : exponent); e; e >>= 1) {
    if (e & 1) result = round(result * square);
    if (e > 1) square = round(square * square);
  }
  return exponent < 0 ? round(1 / result) : result;
}

int64_t power(int64_t base, int64_t exponent) {
  const int64_t both[] = {base, exponent};
  return eval(Fn::pow, std::span<const int64_t>(both));
}

Result<TypedEquation> type_equation(const Program& p, uint32_t equation, Precision precision) {
  const EquationInfo& q = p.equations()[equation];
  const Item& item = p.syntax().items[q.item];
  const Type type = p.variables()[q.target].type;
  Typer t(p, precision, class_of_values(type));
  for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a) t.access_of(p.accesses()[a].expr, a);
  TypedEquation out;
  out.item = q.item;
  std::vector<NodeId> subscripts;
  for (ExprId o : p.syntax().operands_of(item.target)) {
    const auto v = t.value(o);
    if (v && ((!v->literal && is_real(v->cls)) || (v->literal && !v->whole))) t.refuse(o, "a subscript is no integer");
    if (!v || !t.errors().empty()) return t.errors();
    subscripts.push_back(t.materialise(*v, Class::integer));
  }
  const auto v = t.value(item.value);
  if (!v) return t.errors();
  const Class target = t.widen(class_of_values(type));
  if (v->literal && !v->whole && std::isinf(v->real) && !is_real(target)) {
    t.refuse(item.value, "`inf` is no integer");
    return t.errors();
  }
  // A real value is rounded, or truncated and saturated, by the store itself.
  const bool keep = !v->literal && is_real(v->cls);
  const NodeId root = keep ? v->node : t.materialise(*v, target);
  if (q.accumulator != kNone && q.initialises) out.accumulator = t.node_of(q.accumulator);
  const bool real = leir::is_real(type);
  switch (q.accumulation) {
    case Accumulation::product:
      out.identity = 1;
      out.identity_integer = 1;
      break;
    case Accumulation::maximum:
      out.identity = -std::numeric_limits<double>::infinity();
      out.identity_integer = real ? 0 : lowest_integer(type);
      break;
    case Accumulation::minimum:
      out.identity = std::numeric_limits<double>::infinity();
      out.identity_integer = real ? 0 : highest_integer(type);
      break;
    default: break;
  }
  out.code = t.take();
  out.code.root = root;
  out.code.subscripts = std::move(subscripts);
  return out;
}

Result<Typed> type_extent(const Program& p, uint32_t loop) {
  Typer t(p, Precision::storage, Class::integer);
  const ExprId extent = p.syntax().loops[loop].extent;
  const auto v = t.value(extent);
  if (v && ((!v->literal && is_real(v->cls)) || (v->literal && !v->whole))) t.refuse(extent, "an extent is no integer");
  if (!v || !t.errors().empty()) return t.errors();
  const NodeId root = t.materialise(*v, Class::integer);
  Typed out = t.take();
  out.root = root;
  return out;
}

namespace {
// How often an equation is computed, at most.
double points_of(const Program& p, const EquationInfo& q) {
  double points = 1;
  for (uint32_t l : q.loops) points *= static_cast<double>(std::max<int64_t>(p.pool().bounds(p.extent_form(l)).hi, 0));
  return points;
}
}  // namespace

Diagnostics too_long(const Program& p, int64_t max_steps) {
  double total = 0;
  for (uint32_t q = 0; q < p.equations().size(); ++q) {
    const auto t = type_equation(p, q);
    if (!t) return t.errors();
    total += points_of(p, p.equations()[q]) * static_cast<double>(t->code.nodes.size());
  }
  if (total <= static_cast<double>(max_steps)) return {};
  return {diagnose(Code::leir_work, fmt::format("up to {:.0f}", total), max_steps)};
}

Result<double> operations(const Program& p) {
  double total = 0;
  for (uint32_t q = 0; q < p.equations().size(); ++q) {
    TRY_ASSIGN(const TypedEquation t, type_equation(p, q));
    const double points = points_of(p, p.equations()[q]);
    double each = 0;
    for (const Node& n : t.code.nodes)
      each += n.act >= Act::add && (is_real(n.cls) || n.act == Act::compare) && n.act != Act::select;
    total += points * each;
  }
  return total;
}

}  // namespace cleave::leir
