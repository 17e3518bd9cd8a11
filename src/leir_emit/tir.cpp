#include "leir_emit/tir.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.hpp"
#include "base/codes.hpp"

namespace cleave::leir {

namespace {

constexpr size_t kMaxLoops = 64;
constexpr int kMaxDepth = 100;  // of brackets: Python's parser ends at about 200

// How versions of TVM spell what has changed.
struct Spelling {
  const char* version;
  const char* function;  // the decorator of a function made of blocks
  const char* block;
  const char* block_buffer;  // of a function made of blocks
};
constexpr Spelling kSpellings[] = {
    {"0.27", "@T.prim_func(s_tir=True)", "T.sblock", "T.sblock_alloc_buffer"},
    {"0.20", "@T.prim_func", "T.block", "T.alloc_buffer"},
};

const char* dtype(Type t) {
  constexpr const char* kNames[] = {"float16", "float32", "float64", "bfloat16", "int8",   "int16", "int32",
                                    "int64",   "uint8",   "uint16",  "uint32",   "uint64", "bool"};
  return kNames[static_cast<size_t>(t)];
}
const char* dtype(Class c) {
  constexpr const char* kNames[] = {"bool", "int64", "uint64", "float32", "float64"};
  return kNames[static_cast<size_t>(c)];
}

// {0} {1} {2}: arguments; {t}: the dtype. Numbers in them take the dtype from their neighbours.
struct Form {
  Function function;
  const char* text;
};
constexpr Form kForms[] = {
    {Function::max, "T.max({0}, {1})"},
    {Function::min, "T.min({0}, {1})"},
    {Function::clamp, "T.min(T.max({0}, {1}), {2})"},
    {Function::fma, "({0} * {1} + {2})"},
    {Function::sign, "(T.Cast(\"{t}\", {0} > 0) - T.Cast(\"{t}\", {0} < 0))"},
    {Function::square, "({0} * {0})"},
    {Function::relu, "T.max({0}, T.{t}(0))"},
    {Function::expm1,
     "T.if_then_else(T.abs({0}) < T.{t}(0.001), {0} * (T.{t}(1) + {0} * (T.{t}(0.5) + {0} * "
     "T.{t}(0.16666666666666666))), "
     "T.exp({0}) - T.{t}(1))"},
    {Function::reciprocal, "(T.{t}(1) / {0})"},
    {Function::round, "T.nearbyint({0})"},
    {Function::sigmoid, "T.sigmoid({0})"},
    {Function::silu, "({0} * T.sigmoid({0}))"},
    {Function::gelu_erf, "({0} * T.{t}(0.5) * (T.{t}(1) + T.erf({0} * T.{t}(0.7071067811865476))))"},
    {Function::gelu_tanh, "({0} * T.sigmoid(T.{t}(1.5957691216057308) * ({0} + T.{t}(0.044715) * {0} * {0} * {0})))"},
    {Function::softplus, "(T.max({0}, T.{t}(0)) + T.log1p(T.exp(-T.abs({0}))))"},
    {Function::mish, "({0} * T.tanh(T.max({0}, T.{t}(0)) + T.log1p(T.exp(-T.abs({0})))))"},
    {Function::elu, "T.if_then_else({0} > 0, {0}, {1} * (T.exp({0}) - T.{t}(1)))"},
    {Function::selu,
     "(T.{t}(1.0507009873554805) * T.if_then_else({0} > 0, {0}, T.{t}(1.6732632423543772) * (T.exp({0}) - T.{t}(1))))"},
    {Function::hardsigmoid, "T.min(T.max({0} / T.{t}(6) + T.{t}(0.5), T.{t}(0)), T.{t}(1))"},
    {Function::hardswish, "({0} * T.min(T.max({0} / T.{t}(6) + T.{t}(0.5), T.{t}(0)), T.{t}(1)))"},
    {Function::leaky_relu, "T.if_then_else({0} >= 0, {0}, {0} * {1})"},
    {Function::isnan, "T.isnan({0})"},
    {Function::isinf, "(T.abs({0}) == T.infinity(\"{t}\"))"},
};

std::string filled(std::string text, std::span<const std::string> arguments, const char* type) {
  for (size_t i = text.find('{'); i != std::string::npos; i = text.find('{', i)) {
    const size_t close = text.find('}', i);
    const std::string by = text[i + 1] == 't' ? type : arguments[static_cast<size_t>(text[i + 1] - '0')];
    text.replace(i, close - i + 1, by);
    i += by.size();
  }
  return text;
}

class TirWriter {
 public:
  TirWriter(const Program& p, const TirOptions& o, const Spelling& spelling)
      : p_(p), s_(p.syntax()), cuda_(o.cuda), spelling_(spelling) {}

  Result<std::string> run() {
    out_ = fmt::format("# TVM script, as TVM {} reads it\n@I.ir_module\nclass Module:\n", spelling_.version);
    ++indent_;
    line(cuda_ ? spelling_.function : "@T.prim_func");
    std::string parameters;
    for (uint32_t v = 0; v < p_.variables().size(); ++v)
      if (p_.variables()[v].known())
        parameters += fmt::format("{}{}: T.Buffer({}, \"{}\")", parameters.empty() ? "" : ", ", buffer(v), shape(v),
                                  dtype(p_.variables()[v].type));
    line(fmt::format("def main({}):", parameters));
    ++indent_;
    line("T.func_attr({\"tir.noalias\": True})");
    for (uint32_t v = 0; v < p_.variables().size(); ++v) {
      const Variable& var = p_.variables()[v];
      if (var.known()) continue;
      const char* scope = !cuda_ || var.scope == Scope::global ? ""
                          : var.scope == Scope::shared         ? ", scope=\"shared\""
                                                               : ", scope=\"local\"";
      line(fmt::format("{} = {}({}, \"{}\"{})", buffer(v), cuda_ ? spelling_.block_buffer : "T.alloc_buffer", shape(v),
                       dtype(var.type), scope));
    }
    for (uint32_t i = 0; i < s_.items.size(); i = s_.items[i].end)
      if (Diagnostics bad = nest(i); !bad.empty()) return bad;
    return std::move(out_);
  }

 private:
  static Diagnostic refuse(const std::string& why) { return diagnose(Code::leir_unsupported, "TVM script", why); }
  void line(const std::string& text) { out_ += std::string(4 * indent_, ' ') + text + "\n"; }
  // Names of the script itself are taken.
  std::string buffer(uint32_t v) const {
    const std::string& n = p_.name(v);
    return n == "I" ? n + "_" : n;
  }
  std::string index(uint32_t loop) const {
    static const std::set<std::string> kTaken = {"and", "as",  "def", "del", "for",  "from", "if",  "in",
                                                 "is",  "not", "or",  "try", "main", "pass", "with"};
    const std::string& n = s_.text(s_.loops[loop].index);
    return kTaken.contains(n) ? n + "_" : n;
  }
  std::string shape(uint32_t v) const {
    const auto& extents = p_.variables()[v].shape;
    return fmt::format("({}{})", fmt::join(extents, ", "), extents.size() == 1 ? "," : "");
  }

  // Items in order, with a stack instead of recursion.
  Diagnostics nest(uint32_t root) {
    std::vector<uint32_t> ends;
    std::vector<size_t> indents;
    for (uint32_t i = root; i < s_.items[root].end; ++i) {
      while (!ends.empty() && i >= ends.back()) {
        indent_ = indents.back();
        ends.pop_back();
        indents.pop_back();
      }
      const Item& item = s_.items[i];
      if (!item.nest()) {
        if (Diagnostics bad = equation(p_.equation_of(i)); !bad.empty()) return bad;
        continue;
      }
      ends.push_back(item.end);
      indents.push_back(indent_);
      for (uint32_t l = item.first_loop; l < item.first_loop + item.loops; ++l) {
        const auto extent = type_extent(p_, l);
        if (!extent) return extent.errors();
        auto text = expression(*extent, extent->root, true);
        if (!text) return text.errors();
        line(fmt::format("for {} in {}:", index(l), loop(l, root, *text)));
        if (++indent_ > kMaxLoops + 3)
          return {refuse(fmt::format("the loop `{}` is deeper than {}", index(l), kMaxLoops))};
      }
    }
    while (!ends.empty()) {
      indent_ = indents.back();
      ends.pop_back();
      indents.pop_back();
    }
    return {};
  }

  bool inside(uint32_t loop, const EquationInfo& q) const {
    return std::find(q.loops.begin(), q.loops.end(), loop) != q.loops.end();
  }
  std::string loop(uint32_t l, uint32_t root, const std::string& extent) const {
    const Loop& loop = s_.loops[l];
    const bool fixed = p_.extent(l).has_value();
    bool reduced = false, kept = false;
    size_t equations = 0;
    for (const EquationInfo& q : p_.equations()) {
      if (!inside(l, q)) continue;
      ++equations;
      reduced = reduced || std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end();
      kept = kept || (!p_.variables()[q.target].known() && p_.variables()[q.target].scope != Scope::global);
    }
    switch (loop.kind) {
      case Kind::serial: break;
      case Kind::unroll:
        if (fixed) return fmt::format("T.unroll({})", extent);
        break;
      case Kind::vector:
        if (fixed && !reduced && equations == 1 && (cuda_ || innermost(l)))
          return fmt::format("T.vectorized({})", extent);
        break;
      case Kind::bind:
        if (cuda_) {
          const std::string& n = s_.text(loop.index);
          return fmt::format("T.thread_binding({}, thread=\"{}Idx.{}\")", extent, n[0] == 'b' ? "block" : "thread",
                             n[1]);
        }
        [[fallthrough]];
      case Kind::parallel:
        if (cuda_ || (l == s_.items[root].first_loop && !reduced && !kept))
          return fmt::format("T.parallel({})", extent);
        break;
    }
    return fmt::format("range({})", extent);
  }
  bool innermost(uint32_t l) const {
    for (const EquationInfo& q : p_.equations())
      if (inside(l, q) && (q.loops.back() != l || q.initialises)) return false;
    return true;
  }

  Diagnostics equation(uint32_t e) {
    const EquationInfo& q = p_.equations()[e];
    auto code = type_equation(p_, e);
    if (!code) return code.errors();
    const size_t outer = indent_;
    axes_.clear();
    if (cuda_) {
      if (const auto idle = repeating_loop(q))
        return {refuse(fmt::format("`{}` is accumulated again in each iteration of `{}`, which no axis of its block is",
                                   p_.name(q.target), index(*idle)))};
      block(q);
    }
    std::vector<std::string> at;
    for (NodeId n : code->code.subscripts) {
      auto text = expression(code->code, n, true);
      if (!text) return text.errors();
      at.push_back(std::move(*text));
    }
    const std::string target = element(q.target, at);
    const Type type = p_.variables()[q.target].type;
    if (q.initialises) {
      const std::string first = fmt::format("{} = {}", target,
                                            is_real(type) ? stored(type, Class::f64, real(code->identity, Class::f64))
                                                          : integer(code->identity_integer, type));
      if (cuda_) {
        line("with T.init():");
        ++indent_;
        line(first);
        --indent_;
      } else {
        const size_t here = indent_;
        for (uint32_t l : q.reductions) {
          if (p_.extent(l) == 1) continue;
          line(fmt::format("if {} == 0:", index(l)));
          ++indent_;
        }
        line(first);
        indent_ = here;
      }
    }
    auto value = expression(code->code, code->code.root, false);
    if (!value) return value.errors();
    line(fmt::format("{} = {}", target, stored(type, code->code.nodes[code->code.root].cls, *value)));
    indent_ = outer;
    return {};
  }

  // A loop that repeats an accumulation whose equation does not name its index.
  std::optional<uint32_t> repeating_loop(const EquationInfo& q) const {
    if (q.accumulation == Accumulation::none || q.initialises) return std::nullopt;
    for (uint32_t l : q.loops) {
      bool used = p_.extent(l) == 1 || std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end();
      for (sym::Expr f : p_.accesses()[q.first_access].subscripts) used = used || p_.pool().mentions(f, p_.symbol(l));
      if (!used && !private_to(p_, q.target, l)) return l;
    }
    return std::nullopt;
  }

  // A block with an axis for each index that the equation uses: spatial when it stands in the target's subscripts or
  // nothing is accumulated, else reduced over.
  void block(const EquationInfo& q) {
    line(fmt::format("with {}(\"{}\"):", spelling_.block, buffer(q.target)));
    ++indent_;
    std::set<uint32_t> used(q.reductions.begin(), q.reductions.end());
    for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
      for (sym::Expr f : p_.accesses()[a].subscripts)
        for (uint32_t l : q.loops)
          if (p_.pool().mentions(f, p_.symbol(l))) used.insert(l);
    std::string names, kinds, loops;
    std::set<std::string> taken;
    for (uint32_t l : q.loops) taken.insert(index(l));
    for (uint32_t l : q.loops) {
      if (!used.contains(l)) continue;
      std::string name = "v" + index(l);
      while (taken.contains(name)) name += "_";
      axes_[l] = name;
      const bool reduced = q.accumulation != Accumulation::none &&
                           std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end();
      names += (names.empty() ? "" : ", ") + name;
      loops += (loops.empty() ? "" : ", ") + index(l);
      kinds += reduced ? 'R' : 'S';
    }
    if (!axes_.empty()) line(fmt::format("{} = T.axis.remap(\"{}\", [{}])", names, kinds, loops));
  }

  std::string element(uint32_t v, std::span<const std::string> at) const {
    return fmt::format("{}[{}]", buffer(v), at.empty() ? "()" : fmt::format("{}", fmt::join(at, ", ")));
  }
  static std::string real(double v, Class c) {
    if (std::isnan(v)) return fmt::format("(T.infinity(\"{0}\") - T.infinity(\"{0}\"))", dtype(c));
    if (std::isinf(v)) {
      const std::string most = fmt::format("T.infinity(\"{}\")", dtype(c));
      return v > 0 ? most : "(-" + most + ")";
    }
    return fmt::format("T.{}({})", dtype(c), v);
  }
  static std::string integer(int64_t v, Type t) { return fmt::format("T.{}({})", dtype(t), v); }
  static std::string stored(Type type, Class cls, const std::string& text) {
    return std::string(dtype(cls)) == dtype(type) ? text : fmt::format("T.Cast(\"{}\", {})", dtype(type), text);
  }

  // The text of a tree; `plain`: of a subscript or an extent, where integers need no dtype.
  Result<std::string> expression(const Typed& code, NodeId root, bool plain) {
    const size_t n = root + 1;
    std::vector<bool> needed(n, false), subscript(n, false);
    needed[root] = true;
    subscript[root] = plain;
    for (NodeId i = root + 1; i-- > 0;) {
      if (!needed[i]) continue;
      const bool load = code.nodes[i].act == Act::load;
      for (NodeId o : code.operands_of(i)) {
        needed[o] = true;
        subscript[o] = load || subscript[i];
      }
    }
    std::vector<std::string> text(n);
    std::vector<int> depth(n, 0);
    for (NodeId i = 0; i <= root; ++i) {
      if (!needed[i]) continue;
      std::vector<std::string> x;
      for (NodeId o : code.operands_of(i)) {
        depth[i] = std::max(depth[i], depth[o] + 1);
        x.push_back(text[o]);
      }
      if (depth[i] > kMaxDepth) return refuse(fmt::format("an expression is nested deeper than {}", kMaxDepth));
      TRY_ASSIGN(text[i], node(code, i, x, subscript[i]));
      if (text[i].size() > (size_t{1} << 24)) return refuse("an expression is too long");
    }
    return text[root];
  }

  Result<std::string> node(const Typed& code, NodeId id, const std::vector<std::string>& x, bool plain) const {
    const Node& n = code.nodes[id];
    const auto two = [&](const char* sign) { return fmt::format("({} {} {})", x[0], sign, x[1]); };
    switch (n.act) {
      case Act::integer:
        if (n.cls == Class::boolean) return std::string(n.integer ? "T.bool(True)" : "T.bool(False)");
        return plain ? std::to_string(n.integer) : fmt::format("T.{}({})", dtype(n.cls), n.integer);
      case Act::real: return real(n.real, n.cls);
      case Act::index: {
        const auto it = axes_.find(n.meaning);
        const std::string name = it == axes_.end() ? index(n.meaning) : it->second;
        return plain ? name : fmt::format("T.Cast(\"int64\", {})", name);
      }
      case Act::load: {
        const Type type = p_.variables()[n.variable].type;
        const std::string e = element(n.variable, x);
        return std::string(dtype(n.cls)) == dtype(type) ? e : fmt::format("T.Cast(\"{}\", {})", dtype(n.cls), e);
      }
      case Act::convert: {
        const Class from = code.nodes[code.operands_of(id)[0]].cls;
        if (n.cls != Class::boolean) return fmt::format("T.Cast(\"{}\", {})", dtype(n.cls), x[0]);
        return fmt::format("({} != T.{}(0))", x[0], dtype(from));
      }
      case Act::add: return two("+");
      case Act::sub: return two("-");
      case Act::mul: return two("*");
      case Act::div: return two("/");
      case Act::floordiv: return two("//");
      case Act::mod: return two("%");
      case Act::negate: return fmt::format("(-{})", x[0]);
      case Act::power: {
        if (is_real(n.cls)) return fmt::format("T.pow({}, {})", x[0], real(static_cast<double>(n.integer), n.cls));
        if (n.integer == 2) return fmt::format("({0} * {0})", x[0]);
        return refuse(fmt::format("the integer power {}", n.integer));
      }
      case Act::raise:
        if (!is_real(n.cls)) return refuse("a power of integers");
        return fmt::format("T.pow({}, {})", x[0], x[1]);
      case Act::call: return call(code, id, x);
      case Act::compare: {
        constexpr const char* kSigns[] = {"<", "<=", ">", ">=", "==", "!="};
        return two(kSigns[static_cast<size_t>(n.comparison)]);
      }
      // The right side may only be right to evaluate under the left one.
      case Act::logical_and: return fmt::format("T.if_then_else({}, {}, T.bool(False))", x[0], x[1]);
      case Act::logical_or: return fmt::format("T.if_then_else({}, T.bool(True), {})", x[0], x[1]);
      case Act::select: return fmt::format("T.if_then_else({}, {}, {})", x[0], x[1], x[2]);
    }
    CHECK(false, "node {}", id);
  }

  Result<std::string> call(const Typed& code, NodeId id, const std::vector<std::string>& x) const {
    const Node& n = code.nodes[id];
    const Class from = code.nodes[code.operands_of(id)[0]].cls;
    for (const Form& f : kForms)
      if (f.function == n.function) return filled(f.text, x, dtype(from));
    return fmt::format("T.{}({})", info(n.function).name, x[0]);
  }

  const Program& p_;
  const Syntax& s_;
  bool cuda_;
  const Spelling& spelling_;
  std::string out_;
  size_t indent_ = 0;
  std::map<uint32_t, std::string> axes_;  // of the block at hand
};

}  // namespace

std::vector<std::string> tir_versions() {
  std::vector<std::string> out;
  for (const Spelling& s : kSpellings) out.push_back(s.version);
  return out;
}

Result<std::string> emit_tir(const Program& program, const TirOptions& options) {
  for (const Spelling& s : kSpellings)
    if (options.version == s.version) return TirWriter(program, options, s).run();
  return diagnose(Code::leir_unsupported, "TVM script",
                  fmt::format("the spellings of version `{}` are not known (known are {})", options.version,
                              fmt::join(tir_versions(), ", ")));
}

}  // namespace cleave::leir
