#include "algebra/side_by_side.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "graph/spec.hpp"

namespace cleave::algebra {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

size_t place(const graph::IndexNames& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}
bool has(const graph::IndexNames& names, const std::string& name) { return place(names, name) < names.size(); }
bool distinct(const graph::IndexNames& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

// A contraction seen from one of its operands: the other one's axes and the result's by the axis of the first that they
// belong to, or kOwn.
constexpr int kOwn = -1;
struct View {
  NodeId node;
  ValueId shared, other, result;
  std::vector<int> other_axes, result_axes;
  size_t own_in_other = 0;
};

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g) {}

  std::vector<SideBySide> run() {
    shared_operands();
    sums();
    return std::move(out_);
  }

 private:
  const graph::Shape& shape(ValueId v) const { return g_.type(v).shape; }
  graph::ContractSpec spec_of(const Node& n) const {
    return graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
  }
  bool depends(ValueId v, const std::set<uint32_t>& on) const {
    if (on.contains(v.index)) return true;
    const Node& n = g_.producer(v);
    return std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return depends(o, on); });
  }
  bool constant(ValueId v) const {
    const Node& n = g_.producer(v);
    if (n.operands.empty()) return n.op != Op::input && n.op != Op::scalar;
    return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return constant(o); });
  }
  double copied(ValueId v) const {
    if (constant(v)) return 0;
    double n = 1;
    for (sym::Expr e : shape(v)) n *= static_cast<double>(g_.syms().as_constant(e).value_or(256));
    return n;
  }
  std::string name(ValueId v) const {
    const std::string& n = g_.value(v).name;
    return n.empty() ? fmt::format("v{}", v.index) : n;
  }

  // The view of contraction `id` from operand `side`, where the other operand has exactly one index of its own.
  bool view(NodeId id, size_t side, View& out) const {
    const Node& n = g_.node(id);
    const auto spec = spec_of(n);
    const auto &mine = spec.operands[side], &other = spec.operands[1 - side];
    if (!distinct(mine) || !distinct(other) || n.operands[0] == n.operands[1]) return false;
    out = {id, n.operands[side], n.operands[1 - side], n.results[0], {}, {}, 0};
    int own = 0;
    for (size_t a = 0; a < other.size(); ++a) {
      if (g_.syms().is(shape(out.other)[a], 1)) return false;  // it may stretch
      const bool shared = has(mine, other[a]);
      out.other_axes.push_back(shared ? static_cast<int>(place(mine, other[a])) : kOwn);
      if (shared) continue;
      if (!has(spec.result, other[a])) return false;  // summed by itself
      out.own_in_other = a;
      ++own;
    }
    for (size_t a = 0; a < spec.result.size(); ++a) {
      const bool shared = has(mine, spec.result[a]);
      out.result_axes.push_back(shared ? static_cast<int>(place(mine, spec.result[a])) : kOwn);
    }
    return own == 1;
  }

  // The axes of the shared operand in order, the own one last.
  static std::vector<int> ordered(std::vector<int> axes) {
    std::sort(axes.begin(), axes.end());
    std::rotate(axes.begin(), axes.begin() + 1, axes.end());
    return axes;
  }

  void shared_operands() {
    // The results may have their axes in any order.
    std::map<std::tuple<ValueId, std::vector<int>, std::vector<int>, DType>, std::vector<View>> groups;
    for (NodeId id : g_.node_ids())
      if (g_.node(id).op == Op::contract)
        for (size_t side : {0, 1}) {
          View v;
          if (view(id, side, v)) groups[{v.shared, v.other_axes, v.result_axes, g_.type(v.result).dtype}].push_back(v);
        }
    for (auto& [key, members] : groups) {
      // What one computes must not be what another needs.
      std::vector<View> apart;
      std::set<uint32_t> results;
      for (const View& v : members) results.insert(v.result.index);
      for (const View& v : members)
        if (!depends(v.other, results) && !depends(v.shared, results)) apart.push_back(v);
      if (apart.size() >= 2) put_together(apart);
    }
  }

  // Copies the graph on demand, so that what is put together may stand anywhere; `special` makes values of its own.
  using Special =
      std::function<bool(Builder&, ValueId, const std::function<ValueId(ValueId)>&, std::map<ValueId, ValueId>&)>;
  Graph copy(const Special& special) const {
    Builder b(g_.name(), g_.shared_syms());
    for (sym::Expr d : g_.dims()) {
      const auto range = b.syms().symbol_range(d);
      b.dim(b.syms().symbol_name(d), range.lo, range.hi);
    }
    std::map<ValueId, ValueId> made;
    for (ValueId v : g_.leaves()) {
      const Node& n = g_.producer(v);
      const std::string& leaf = n.attributes.get<std::string>("name");
      const auto& type = g_.type(v);
      made[v] = n.op == Op::input ? b.input(leaf, type.dtype, type.shape)
                : n.op == Op::scalar
                    ? b.scalar(leaf, type.dtype)
                    : b.constant(leaf, type.dtype, type.shape, n.attributes.get<graph::ConstantData>("data"));
    }
    std::function<ValueId(ValueId)> get = [&](ValueId v) {
      if (const auto it = made.find(v); it != made.end()) return it->second;
      if (special(b, v, get, made)) return made.at(v);
      const Node& n = g_.producer(v);
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(get(o));
      const auto results = b.make_all(n.op, operands, n.attributes);
      for (size_t i = 0; i < results.size(); ++i) {
        made[n.results[i]] = results[i];
        if (!g_.value(n.results[i]).name.empty()) b.set_name(results[i], g_.value(n.results[i]).name);
      }
      return made.at(v);
    };
    for (const auto& o : g_.outputs()) b.output(o.name, get(o.value));
    return b.take();
  }

  void put_together(const std::vector<View>& members) {
    const View& first = members[0];
    auto special = [&](Builder& b, ValueId v, const auto& get, std::map<ValueId, ValueId>& made) {
      if (std::none_of(members.begin(), members.end(), [&](const View& m) { return m.result == v; })) return false;
      const ValueId x = get(first.shared);
      std::vector<ValueId> others;
      std::vector<sym::Expr> sizes;
      for (const View& m : members) {
        others.push_back(get(m.other));
        sizes.push_back(shape(m.other)[m.own_in_other]);
      }
      const ValueId joined = b.make(Op::concat, others, {{"axis", static_cast<int64_t>(first.own_in_other)}});
      auto letter = [](int axis) { return axis == kOwn ? std::string("n") : fmt::format("x{}", axis); };
      graph::ContractSpec spec;
      spec.operands.resize(2);
      for (size_t a = 0; a < shape(first.shared).size(); ++a) spec.operands[0].push_back(letter(static_cast<int>(a)));
      for (int a : first.other_axes) spec.operands[1].push_back(letter(a));
      const std::vector<int> axes = ordered(first.result_axes);
      for (int a : axes) spec.result.push_back(letter(a));
      const ValueId product = b.make(Op::contract, {x, joined}, {{"spec", print(spec)}});
      const auto parts =
          b.make_all(Op::split, {product}, {{"axis", static_cast<int64_t>(axes.size()) - 1}, {"sizes", sizes}});
      for (size_t i = 0; i < members.size(); ++i) {
        std::vector<int64_t> perm;
        for (int a : members[i].result_axes) perm.push_back(std::find(axes.begin(), axes.end(), a) - axes.begin());
        made[members[i].result] =
            std::is_sorted(perm.begin(), perm.end()) ? parts[i] : b.make(Op::transpose, {parts[i]}, {{"perm", perm}});
      }
      return true;
    };
    std::string before, after;
    double elements = 0;
    for (const View& m : members) {
      before += fmt::format("{}{} * {}", before.empty() ? "" : "; ", name(m.shared), name(m.other));
      after += (after.empty() ? "" : " | ") + name(m.other);
      elements += copied(m.other);
    }
    out_.push_back({copy(special),
                    {"contractions side by side", name(first.shared), before,
                     fmt::format("{} * [{}]", name(first.shared), after), ""},
                    elements});
  }

  // Sums of two contractions of one bound index each, whose operands and result have the same axes but for that index.
  void sums() {
    for (NodeId id : g_.node_ids()) {
      const Node& n = g_.node(id);
      if (n.op != Op::add || n.operands[0] == n.operands[1]) continue;
      const Node &p = g_.producer(n.operands[0]), &q = g_.producer(n.operands[1]);
      if (p.op != Op::contract || q.op != Op::contract) continue;
      if (shape(n.operands[0]) != shape(n.operands[1])) continue;  // one may stretch
      for (size_t flip : {0, 1})
        if (sum(n, p, q, flip)) break;
    }
  }

  bool sum(const Node& n, const Node& p, const Node& q, size_t flip) {
    const auto s = spec_of(p), t = spec_of(q);
    const auto bound = s.reduced(), other_bound = t.reduced();
    if (bound.size() != 1 || other_bound.size() != 1) return false;
    ValueId operands[2][2];
    size_t axis[2];
    for (size_t side : {0, 1}) {
      const auto &a = s.operands[side], &b = t.operands[flip ? 1 - side : side];
      operands[0][side] = p.operands[side];
      operands[1][side] = q.operands[flip ? 1 - side : side];
      if (a.size() != b.size() || !distinct(a) || !distinct(b) || !has(a, bound[0]) || !has(b, other_bound[0]))
        return false;
      axis[side] = place(a, bound[0]);
      for (size_t k = 0; k < a.size(); ++k) {
        const sym::Expr x = shape(operands[0][side])[k], y = shape(operands[1][side])[k];
        if (k == axis[side] ? b[k] != other_bound[0] || g_.syms().is(x, 1) || g_.syms().is(y, 1)
                            : x != y || place(s.result, a[k]) != place(t.result, b[k]))
          return false;
      }
    }
    auto special = [&](Builder& b, ValueId v, const auto& get, std::map<ValueId, ValueId>& made) {
      if (v != n.results[0]) return false;
      ValueId joined[2];
      for (size_t side : {0, 1})
        joined[side] = b.make(Op::concat, {get(operands[0][side]), get(operands[1][side])},
                              {{"axis", static_cast<int64_t>(axis[side])}});
      made[v] = b.make(Op::contract, {joined[0], joined[1]}, {{"spec", print(s)}});
      if (!g_.value(v).name.empty()) b.set_name(made[v], g_.value(v).name);
      return true;
    };
    double elements = 0;
    for (const auto& pair : operands)
      for (ValueId v : pair) elements += copied(v);
    out_.push_back({copy(special),
                    {"sum of contractions as one", name(n.results[0]),
                     fmt::format("{} * {} + {} * {}", name(operands[0][0]), name(operands[0][1]), name(operands[1][0]),
                                 name(operands[1][1])),
                     fmt::format("[{} | {}] * [{} | {}]", name(operands[0][0]), name(operands[1][0]),
                                 name(operands[0][1]), name(operands[1][1])),
                     ""},
                    elements});
    return true;
  }

  const Graph& g_;
  std::vector<SideBySide> out_;
};

}  // namespace

std::vector<SideBySide> side_by_side(const Graph& graph) { return Finder(graph).run(); }

}  // namespace cleave::algebra
