#include "leir_emit/c.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.hpp"
#include "base/codes.hpp"
#include "leir/walk.hpp"
#include "leir_emit/c_prelude.hpp"
#include "leir_emit/threads.hpp"

namespace cleave::leir {

namespace {

constexpr size_t kMaxBraces = 200;
constexpr size_t kInline = 160;  // longer texts get a name

const char* storage(Type t) {
  switch (t) {
    case Type::f64: return "double";
    case Type::f32: return "float";
    case Type::f16: return "f16";
    case Type::bf16: return "bf16";
    case Type::i8: return "int8_t";
    case Type::i16: return "int16_t";
    case Type::i32: return "int32_t";
    case Type::i64: return "int64_t";
    case Type::u8: return "uint8_t";
    case Type::u16: return "uint16_t";
    case Type::u32: return "uint32_t";
    case Type::u64: return "uint64_t";
    case Type::boolean: return "uint8_t";
  }
  return "";
}
const char* c_type(Class c) {
  constexpr const char* kNames[] = {"int64_t", "int64_t", "uint64_t", "float", "double"};
  return kNames[static_cast<size_t>(c)];
}

std::string number(double v, bool single) {
  if (std::isnan(v)) return "NAN";
  if (std::isinf(v)) return v > 0 ? "INFINITY" : "(-INFINITY)";
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  if (single) s += "f";
  return v < 0 || std::signbit(v) ? "(" + s + ")" : s;
}
std::string number(int64_t v) {
  if (v == INT64_MIN) return "INT64_MIN";
  const std::string s = v > INT32_MAX || v < INT32_MIN ? fmt::format("INT64_C({})", v) : std::to_string(v);
  return v < 0 ? "(" + s + ")" : s;
}

class CWriter : private Walker {
 public:
  CWriter(const Program& p, const COptions& o) : Walker(p, "C"), s_(p.syntax()), o_(o) {}

  Result<std::string> run() {
    if (o_.prelude) out_ += c_prelude();
    // Buffers are parameters, so that `restrict` is believed.
    std::string parameters, arguments;
    for (uint32_t v = 0; v < p_.variables().size(); ++v) {
      const Variable& var = p_.variables()[v];
      const bool in = var.known() && var.role != Role::output;
      parameters += fmt::format("    {}{} *restrict {},  /* [{}] */\n", in ? "const " : "", storage(var.type),
                                buffer(v), fmt::join(var.shape, ","));
      arguments += fmt::format("v[{}], ", v);
    }
    line(fmt::format("static int {}_body(\n{}    int64_t *restrict at) {{", o_.name, parameters));
    ++depth_;
    line("(void)at;");
    for (uint32_t i = 0; i < s_.items.size(); i = s_.items[i].end) {
      if (Diagnostics bad = nest(i); !bad.empty()) return bad;
    }
    line("return 0;");
    close();
    line(fmt::format("int {0}(void *const *v, int64_t *at) {{ return {0}_body({1}at); }}", o_.name, arguments));
    return std::move(out_);
  }

  // One kernel a top-level nest, one thread a point of its bound loops.
  Result<std::string> run_cuda() {
    cuda_ = true;
    out_ += cuda_prelude();
    const std::vector<Placement> placed = placements(p_);
    for (const Placement& place : placed)  // others are in global memory, and checked as such
      if (place.honoured) fixed_.emplace(place.variable, place.fixed);
    std::string host;
    for (uint32_t i = 0; i < s_.items.size(); i = s_.items[i].end) {
      TRY_ASSIGN(plan_, thread_plan(p_, i, placed));
      std::string parameters, arguments;
      for (uint32_t v = 0; v < p_.variables().size(); ++v) {
        const Variable& var = p_.variables()[v];
        const bool in = var.known() && var.role != Role::output;
        if (fixed_.contains(v)) continue;
        parameters += fmt::format("    {}{} *__restrict__ {},\n", in ? "const " : "", storage(var.type), buffer(v));
        arguments += fmt::format("({} *)v[{}], ", storage(var.type), v);
      }
      line(fmt::format("__global__ void {}_{}(\n{}    int *error) {{", o_.name, i, parameters));
      ++depth_;
      for (const auto& [v, fixed] : fixed_) {
        if (std::none_of(p_.accesses().begin(), p_.accesses().end(),
                         [&](const Access& x) { return x.variable == v && p_.top_of(x.item) == i; }))
          continue;
        const Variable& var = p_.variables()[v];
        int64_t elements = 1;
        for (size_t d = 0; d < fixed.size(); ++d) elements *= fixed[d] ? 1 : var.shape[d];
        line(fmt::format("{}{} {}[{}];", var.scope == Scope::shared ? "__shared__ " : "", storage(var.type), buffer(v),
                         std::max<int64_t>(1, elements)));
      }
      std::set<std::string> places;
      for (uint32_t j = i; j < s_.items[i].end; ++j)
        for (uint32_t l = s_.items[j].first_loop; l < s_.items[j].first_loop + s_.items[j].loops; ++l)
          if (s_.loops[l].kind == Kind::bind && places.insert(index(l)).second)
            line(fmt::format("const int64_t {} = {};", index(l), place(axis_of(p_, l))));
      if (Diagnostics bad = nest(i); !bad.empty()) return bad;
      close();
      auto axis = [&](const char* name) { return plan_.axes.contains(name) ? number(plan_.axes[name]) : "1"; };
      host += fmt::format("  {}({}_{}, dim3({}, {}, {}), dim3({}, {}, {}), {}error);\n",
                          plan_.waits() ? "LAUNCH_WAITING" : "LAUNCH", o_.name, i, axis("bx"), axis("by"), axis("bz"),
                          axis("tx"), axis("ty"), axis("tz"), arguments);
    }
    line(fmt::format("extern \"C\" void {}(void *const *v, int *error) {{", o_.name));
    out_ += host + "}\n";
    return std::move(out_);
  }

 private:
  std::string buffer(uint32_t v) const { return "v_" + p_.name(v); }
  std::string index(uint32_t l) const { return "i_" + s_.text(s_.loops[l].index); }
  void line(const std::string& text) { out_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n"; }

  // ---- loops ------------------------------------------------------------------------------------------------------

  Diagnostics begin_loop(uint32_t l) override {
    const Loop& loop = s_.loops[l];
    if (Diagnostics bad = extent_text(l); !bad.empty()) return bad;
    if (cuda_ && loop.kind == Kind::bind) {
      braces_.push_back(0);
      if (plan_.turns.contains(l)) {
        line(fmt::format("for (int64_t turn_{0} = 0; turn_{0} < {1}; ++turn_{0}) {{", index(l), extent_text_));
        ++depth_;
        ++braces_.back();
      }
      if (plan_.open.contains(l)) return {};
      TRY_ASSIGN(const std::string here, condition(l));
      line(fmt::format("if ({}) {{", here));
      ++depth_;
      ++braces_.back();
      return {};
    }
    braces_.push_back(1);
    if (cuda_ && loop.kind == Kind::unroll) line("#pragma unroll");
    if (!cuda_ && loop.kind == Kind::vector) line("#pragma clang loop vectorize(enable)");
    if (!cuda_ && loop.kind == Kind::unroll) line("#pragma clang loop unroll(enable)");
    line(fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0}) {{", index(l), extent_text_));
    ++depth_;
    return {};
  }
  void close() {
    --depth_;
    line("}");
  }

  void end_loop(uint32_t l) override {
    const int braces = braces_.back();
    braces_.pop_back();
    const bool turns = cuda_ && plan_.turns.contains(l), waits = turns || (cuda_ && plan_.barrier_in.contains(l));
    for (int k = braces; k-- > 0;) {
      if (k == 0 && waits) line("__syncthreads();");
      close();
    }
  }
  void begin_item(uint32_t i) override {
    if (cuda_ && plan_.barrier_before.contains(i)) line("__syncthreads();");
  }
  // A sum over threads, each in its turn, has no place for a loop of its own before it.
  bool gives_first_values(uint32_t) const override { return !cuda_ || plan_.turns.empty(); }

  static std::string place(const std::string& axis) {
    return fmt::format("{}Idx.{}", axis[0] == 'b' ? "block" : "thread", axis[1]);
  }
  // When a bound loop has its body run.
  Result<std::string> condition(uint32_t l) {
    if (plan_.turns.contains(l)) return fmt::format("{0} == turn_{0}", index(l));
    if (Diagnostics bad = extent_text(l); !bad.empty()) return bad;
    return fmt::format("{} < {}", index(l), extent_text_);
  }
  // Which threads run an equation, where not all that come to it do.
  Result<bool> begin_guard(uint32_t item) {
    if (!cuda_) return false;
    std::string text;
    for (uint32_t l : p_.equations()[p_.equation_of(item)].loops)
      if (plan_.open.contains(l)) {
        TRY_ASSIGN(const std::string here, condition(l));
        text += (text.empty() ? "" : " && ") + here;
      }
    if (const auto it = plan_.alone.find(item); it != plan_.alone.end())
      for (const std::string& axis : it->second) text += (text.empty() ? "" : " && ") + place(axis) + " == 0";
    if (text.empty()) return false;
    line(fmt::format("if ({}) {{", text));
    ++depth_;
    return true;
  }

  Diagnostics first_value(uint32_t i) override {
    const EquationInfo& q = p_.equations()[p_.equation_of(i)];
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, p_.equation_of(i)));
    TRY_ASSIGN(const bool guarded, begin_guard(i));
    begin(t.code, i);
    const Type type = p_.variables()[q.target].type;
    const Class c = class_of_values(type);
    const std::string at = element(p_.accesses()[q.first_access], texts(t.code.subscripts));
    const std::string value = is_real(type) ? number(t.identity, c == Class::f32) : number(t.identity_integer);
    line(fmt::format("{} = {};", at, stored(type, value, c)));
    if (guarded) close();
    return {};
  }

  Diagnostics extent_text(uint32_t l) {
    if (const auto n = p_.extent(l)) {
      extent_text_ = number(*n);
      return {};
    }
    auto t = type_extent(p_, l);
    if (!t) return t.errors();
    begin(*t, kNone);
    extent_text_ = text(t->root);
    return {};
  }

  // ---- one equation -----------------------------------------------------------------------------------------------

  Diagnostics equation(uint32_t i) override {
    const uint32_t number_of = p_.equation_of(i);
    const EquationInfo& q = p_.equations()[number_of];
    TRY_ASSIGN(const TypedEquation t, type_equation(p_, number_of));
    TRY_ASSIGN(const bool guarded, begin_guard(i));
    line("{");
    ++depth_;
    begin(t.code, i);
    accumulator_ = first_values_given(i) ? kNone : t.accumulator;
    typed_ = &t;
    const std::vector<std::string> subscripts = texts(t.code.subscripts);
    const std::string value = text(t.code.root);
    if (too_deep_) return {refuse("branches are nested too deeply for compilers")};
    const Access& w = p_.accesses()[q.first_access];
    guard_bounds(w, subscripts, q.first_access);
    line(fmt::format("{} = {};", element(w, subscripts),
                     stored(p_.variables()[q.target].type, value, t.code.nodes[t.code.root].cls)));
    close();
    if (guarded) close();
    typed_ = nullptr;
    return {};
  }

  void begin(const Typed& code, uint32_t item) {
    code_ = &code;
    item_ = item;
    text_.assign(code.nodes.size(), {});
    accumulator_ = kNone;
    temporaries_ = 0;
    too_deep_ = false;
  }

  std::vector<std::string> texts(std::span<const NodeId> nodes) {
    std::vector<std::string> out;
    for (NodeId n : nodes) out.push_back(text(n));
    return out;
  }

  // 1 + the access; negative for a divisor of 0.
  void fail(uint32_t access, const char* sign = "") {
    std::string code;
    int k = 0;
    if (item_ != kNone && !cuda_)
      for (uint32_t l : p_.equations()[p_.equation_of(item_)].loops)
        code += fmt::format("at[{}] = {}; ", k++, index(l));
    if (cuda_)
      line(fmt::format("*error = {}{};", sign, access + 1));
    else
      line(fmt::format("{}return {}{};", code, sign, access + 1));
    if (cuda_) line("return;");
  }
  void guard_bounds(const Access& a, const std::vector<std::string>& subscripts, uint32_t number_of) {
    if (a.bounds == Proof::yes) return;
    const Variable& v = p_.variables()[a.variable];
    std::string condition;
    for (size_t d = 0; d < subscripts.size(); ++d)
      condition += fmt::format("{}(uint64_t)({}) >= {}u", d ? " || " : "", subscripts[d], v.shape[d]);
    line(fmt::format("if ({}) {{", condition));
    ++depth_;
    fail(number_of);
    close();
  }
  std::string element(const Access& a, const std::vector<std::string>& subscripts) const {
    const Variable& v = p_.variables()[a.variable];
    std::string flat;
    const auto own = fixed_.find(a.variable);
    for (size_t d = 0; d < subscripts.size(); ++d) {
      if (own != fixed_.end() && own->second[d]) continue;  // the thread has no other place
      if (flat.empty())
        flat = subscripts[d];
      else
        flat = fmt::format("({}) * {} + {}", flat, v.shape[d], subscripts[d]);
    }
    return fmt::format("{}[{}]", buffer(a.variable), flat.empty() ? "0" : flat);
  }
  static std::string loaded(Type t, const std::string& place) {
    switch (t) {
      case Type::f16: return "(float)" + place;
      case Type::bf16: return "bf16_load(" + place + ")";
      case Type::f32:
      case Type::f64:
      case Type::u64: return place;
      case Type::boolean: return "(int64_t)(" + place + " != 0)";
      default: return "(int64_t)" + place;
    }
  }
  static std::string stored(Type t, const std::string& value, Class c) {
    if (is_real(t)) {
      if (t == Type::bf16) return fmt::format("{}({})", c == Class::f64 ? "bf16_store_double" : "bf16_store", value);
      if (t == Type::f16) return fmt::format("(f16)({})", value);
      return fmt::format("({})({})", storage(t), value);
    }
    if (!is_real(c))
      return t == Type::boolean ? fmt::format("({}) != 0", value) : fmt::format("({})({})", storage(t), value);
    if (t == Type::boolean) return fmt::format("({}) != 0", value);
    if (t == Type::u64) return fmt::format("to_u64({})", value);
    const bool is_unsigned = class_of(t) == TypeClass::unsigned_integer;
    const double high = std::ldexp(1.0, static_cast<int>(8 * byte_size(t) - (is_unsigned ? 0 : 1)));
    return fmt::format("({})to_int({}, {}, {}, {}, {})", storage(t), value, number(is_unsigned ? 0.0 : -high, false),
                       number(high, false), number(lowest_integer(t)), number(highest_integer(t)));
  }

  std::string temporary() { return fmt::format("t{}", temporaries_++); }
  std::string bind(const std::string& value, Class c) {
    const std::string name = temporary();
    line(fmt::format("const {} {} = {};", c_type(c), name, value));
    return name;
  }

  // The text of a node: an expression without effects whose checks stand before it.
  std::string text(NodeId root) {
    tree(*code_, root);
    return text_[root];
  }
  bool done(NodeId n) const override { return !text_[n].empty(); }
  void operation(NodeId n) override {
    std::string value = value_of(n);
    text_[n] = value.size() > kInline ? bind(value, code_->nodes[n].cls) : std::move(value);
  }
  void begin_branch(NodeId lazy) override {
    const Node& n = code_->nodes[lazy];
    const std::string& condition = text_[code_->operands_of(lazy)[0]];
    branches_.push_back(temporary());
    line(fmt::format("{} {};", c_type(n.cls), branches_.back()));
    if (n.act == Act::select) {
      line(fmt::format("if ({}) {{", condition));
    } else {
      line(fmt::format("{} = {};", branches_.back(), condition));
      line(fmt::format("if ({}{}) {{", n.act == Act::logical_or ? "!" : "", branches_.back()));
    }
    ++depth_;
    if (branches_.size() > kMaxBraces) too_deep_ = true;
  }
  void other_branch(NodeId select) override {
    line(fmt::format("{} = {};", branches_.back(), text_[code_->operands_of(select)[1]]));
    --depth_;
    line("} else {");
    ++depth_;
  }
  void end_branch(NodeId lazy) override {
    line(fmt::format("{} = {};", branches_.back(), text_[code_->operands_of(lazy).back()]));
    close();
    text_[lazy] = branches_.back();
    branches_.pop_back();
  }

  std::string value_of(NodeId id) {
    const Node& n = code_->nodes[id];
    const auto o = code_->operands_of(id);
    auto x = [&](size_t k) -> const std::string& { return text_[o[k]]; };
    const bool single = n.cls == Class::f32;
    switch (n.act) {
      case Act::integer: return number(n.integer);
      case Act::real: return number(n.real, single);
      case Act::index: return index(n.meaning);
      case Act::load: return load(id);
      case Act::convert: {
        const Class from = code_->nodes[o[0]].cls;
        if (n.cls == Class::boolean) return fmt::format("(int64_t)({} != 0)", x(0));
        if (n.cls == Class::integer && is_real(from))
          return fmt::format("to_int({}, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)", x(0));
        return fmt::format("({})({})", c_type(n.cls), x(0));
      }
      case Act::add: return fmt::format("({} + {})", x(0), x(1));
      case Act::sub: return fmt::format("({} - {})", x(0), x(1));
      case Act::mul: return fmt::format("({} * {})", x(0), x(1));
      case Act::div: return fmt::format("({} / {})", x(0), x(1));
      case Act::negate: return fmt::format("(-{})", x(0));
      case Act::floordiv:
      case Act::mod: {
        const Node& divisor = code_->nodes[o[1]];
        const bool constant = divisor.act == Act::integer && divisor.integer > 0;
        std::string d = x(1);
        if (!constant) {
          d = bind(d, n.cls);
          line(fmt::format("if ({} == 0) {{", d));
          ++depth_;
          fail(item_ == kNone ? 0 : p_.equations()[p_.equation_of(item_)].first_access, "-");
          close();
        }
        if (n.cls == Class::unsigned_integer) return fmt::format("({} {} {})", x(0), n.act == Act::mod ? "%" : "/", d);
        return fmt::format("{}({}, {})", n.act == Act::mod ? "floor_mod" : "floor_div", x(0), d);
      }
      case Act::power: {
        if (!is_real(n.cls)) return fmt::format("int_pow({}, {})", x(0), n.integer);
        // Squares in the interpreter's order, each rounded to the class.
        std::string square = bind(x(0), n.cls), result;
        for (auto e = static_cast<uint64_t>(std::llabs(n.integer)); e; e >>= 1) {
          if (e & 1) result = result.empty() ? square : bind(fmt::format("{} * {}", result, square), n.cls);
          if (e > 1) square = bind(fmt::format("{0} * {0}", square), n.cls);
        }
        if (result.empty()) result = number(1.0, single);
        return n.integer < 0 ? fmt::format("({} / {})", number(1.0, single), result) : result;
      }
      case Act::raise:
        if (!is_real(n.cls)) return fmt::format("int_pow({}, {})", x(0), x(1));
        return single && o_.strict ? fmt::format("(float)pow((double)({}), (double)({}))", x(0), x(1))
                                   : fmt::format("pow{}({}, {})", single ? "f" : "", x(0), x(1));
      case Act::compare: {
        constexpr const char* kSigns[] = {"<", "<=", ">", ">=", "==", "!="};
        return fmt::format("(int64_t)({} {} {})", x(0), kSigns[static_cast<size_t>(n.comparison)], x(1));
      }
      case Act::call: return call(n, o);
      case Act::logical_and:
      case Act::logical_or:
      case Act::select: break;
    }
    CHECK(false, "node {}", id);
  }

  std::string call(const Node& n, std::span<const NodeId> o) {
    auto x = [&](size_t k) -> const std::string& { return text_[o[k]]; };
    const Class from = code_->nodes[o[0]].cls;
    const bool single = n.cls == Class::f32;
    const std::string name = info(n.function).name;
    if (from == Class::unsigned_integer) {
      switch (n.function) {
        case Function::max: return fmt::format("uint_max({}, {})", x(0), x(1));
        case Function::min: return fmt::format("uint_min({}, {})", x(0), x(1));
        case Function::clamp: return fmt::format("uint_min(uint_max({}, {}), {})", x(0), x(1), x(2));
        case Function::relu:
        case Function::abs: return x(0);
        case Function::sign: return fmt::format("(uint64_t)({} != 0)", x(0));
        default: break;
      }
    }
    if (!is_real(from)) {
      switch (n.function) {
        case Function::max: return fmt::format("int_max({}, {})", x(0), x(1));
        case Function::min: return fmt::format("int_min({}, {})", x(0), x(1));
        case Function::clamp: return fmt::format("int_min(int_max({}, {}), {})", x(0), x(1), x(2));
        case Function::relu: return fmt::format("int_max({}, 0)", x(0));
        case Function::square: return fmt::format("int_pow({}, 2)", x(0));
        case Function::abs: {
          const std::string v = bind(x(0), n.cls);
          return fmt::format("({0} < 0 ? -{0} : {0})", v);
        }
        default: {
          const std::string v = bind(x(0), n.cls);
          return fmt::format("(int64_t)(({0} > 0) - ({0} < 0))", v);
        }
      }
    }
    const char* width = single ? "f32" : "f64";
    switch (n.function) {
      case Function::isnan: return fmt::format("(int64_t)(isnan({}) != 0)", x(0));
      case Function::isinf: return fmt::format("(int64_t)(isinf({}) != 0)", x(0));
      case Function::max: return fmt::format("max_{}({}, {})", width, x(0), x(1));
      case Function::min: return fmt::format("min_{}({}, {})", width, x(0), x(1));
      case Function::clamp: return fmt::format("min_{0}(max_{0}({1}, {2}), {3})", width, x(0), x(1), x(2));
      case Function::relu: return fmt::format("max_{}({}, 0)", width, x(0));
      case Function::abs: return fmt::format("fabs{}({})", single ? "f" : "", x(0));
      case Function::fma:
        return single && !o_.strict ? fmt::format("fmaf({}, {}, {})", x(0), x(1), x(2))
                                    : fmt::format("{}fma({}, {}, {})", single ? "(float)" : "", x(0), x(1), x(2));
      case Function::sqrt:
      case Function::floor:
      case Function::ceil: return fmt::format("{}{}({})", name, single ? "f" : "", x(0));
      case Function::round: return fmt::format("nearbyint{}({})", single ? "f" : "", x(0));
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
        if (single && o_.strict) return fmt::format("(float){}((double)({}))", name, x(0));
        return fmt::format("{}{}({})", name, single ? "f" : "", x(0));
      default: {
        std::string arguments = x(0);
        for (size_t k = 1; k < o.size(); ++k) arguments += ", " + x(k);
        return fmt::format("{}fn_{}({})", single ? "(float)" : "", name, arguments);
      }
    }
  }

  std::string load(NodeId id) {
    const Node& n = code_->nodes[id];
    if (n.meaning == kNone) {  // in an extent
      Access a;
      a.variable = n.variable;
      std::vector<std::string> at;
      for (NodeId s : code_->operands_of(id)) at.push_back(text_[s]);
      return loaded(p_.variables()[n.variable].type, element(a, at));
    }
    const Access& a = p_.accesses()[n.meaning];
    std::vector<std::string> subscripts;
    for (NodeId s : code_->operands_of(id)) subscripts.push_back(text_[s]);
    const Variable& v = p_.variables()[a.variable];
    if (id == accumulator_) {
      const EquationInfo& q = p_.equations()[p_.equation_of(item_)];
      std::string first;
      for (uint32_t l : q.reductions) first += fmt::format("{}{} == 0", first.empty() ? "" : " && ", index(l));
      const std::string identity =
          is_real(v.type) ? number(typed_->identity, n.cls == Class::f32) : number(typed_->identity_integer);
      if (first.empty()) return identity;
      return fmt::format("({} ? {} : {})", first, identity, loaded(v.type, element(a, subscripts)));
    }
    guard_bounds(a, subscripts, n.meaning);
    const std::string value = loaded(v.type, element(a, subscripts));
    // A checked load keeps its place behind its check.
    return a.bounds == Proof::yes ? value : bind(value, n.cls);
  }

  const Syntax& s_;
  COptions o_;
  std::string out_, extent_text_;
  int depth_ = 0;
  const Typed* code_ = nullptr;
  const TypedEquation* typed_ = nullptr;
  uint32_t item_ = kNone;
  std::vector<std::string> text_;
  std::map<uint32_t, std::vector<bool>> fixed_;  // of variables of a thread or block: axes that it fixes
  ThreadPlan plan_;                              // of the nest that is written
  std::vector<int> braces_;                      // of each open loop
  std::vector<std::string> branches_;            // what open branches give their values to
  NodeId accumulator_ = kNone;
  int temporaries_ = 0;
  bool too_deep_ = false, cuda_ = false;
};

}  // namespace

Result<std::string> emit_c(const Program& program, const COptions& options) { return CWriter(program, options).run(); }

Result<std::string> emit_cuda(const Program& program) {
  return CWriter(program, {.strict = true, .prelude = true, .name = "leir_run"}).run_cuda();
}

std::string cuda_flags() { return "-x c++ -std=c++17 -O1 -march=native -ffp-contract=off -fwrapv -fno-math-errno"; }

std::string c_flags(bool strict) {
  return strict ? "-std=gnu11 -O3 -march=native -ffp-contract=off -fwrapv -fno-math-errno"
                : "-std=gnu11 -O3 -march=native -ffp-contract=fast -fwrapv -fno-math-errno -fassociative-math "
                  "-fno-signed-zeros -fno-trapping-math";
}

}  // namespace cleave::leir
