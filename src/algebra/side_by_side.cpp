#include "algebra/side_by_side.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
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

// A contraction seen from one of its operands. An axis of the other one, or of the result, is an axis of the first (its
// number) or the n-th that the other has for itself (own(n)).
constexpr int own(size_t n) { return -1 - static_cast<int>(n); }
struct View {
  ValueId shared, other, result;
  std::vector<int> other_axes, result_axes;
  size_t owned = 0;
};

std::vector<int> shared_axes(const std::vector<int>& axes) {
  std::vector<int> out;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(out), [](int a) { return a >= 0; });
  return out;
}
std::vector<int> in_order(std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

// Values of the new graph by those of the old one.
using Made = std::map<ValueId, ValueId>;
using Get = std::function<ValueId(ValueId)>;

// Contractions that may become one: what is computed anew, and how.
struct Joint {
  std::vector<ValueId> results;
  std::function<void(Builder&, const Get&, Made&)> make;
  Derived step;
  double copied = 0;
};

struct Cycle {};  // a value would need itself

class Finder {
 public:
  Finder(const Graph& g, bool record) : g_(g), record_(record), constant_(g.value_count()) {
    for (NodeId id : g.node_ids()) {
      const Node& n = g.node(id);
      const bool given = n.op == Op::input || n.op == Op::scalar;
      const bool yes =
          !given && std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return constant(v); });
      for (ValueId v : n.results) constant_[v.index] = yes;
    }
  }

  std::vector<SideBySide> run() {
    shared_operands();
    sums();
    std::vector<SideBySide> out;
    auto offer = [&](const std::vector<const Joint*>& joints) {
      SideBySide s;
      std::set<ValueId> done;
      for (const Joint* j : joints) {
        s.copied += j->copied;
        s.steps.push_back(j->step);
      }
      try {
        s.graph = copy(joints);
        for (size_t k = 0; record_ && k < joints.size(); ++k)
          s.steps[k].graph = open_text(copy({joints.begin(), joints.begin() + static_cast<long>(k) + 1}));
      } catch (const Cycle&) {
        return false;
      }
      out.push_back(std::move(s));
      return true;
    };
    // A model has many; each alone is of interest only where there are few.
    std::vector<const Joint*> free, all;
    for (const Joint& j : joints_) {
      if (j.copied == 0) free.push_back(&j);
      all.push_back(&j);
    }
    for (auto* list : {&free, &all}) {
      *list = compatible(*list);
      if (list->size() > 1 && (list == &free || list->size() > free.size())) offer(*list);
    }
    for (size_t k = 0; k < std::min<size_t>(joints_.size(), 4); ++k) offer({&joints_[k]});
    return out;
  }

 private:
  const graph::Shape& shape(ValueId v) const { return g_.type(v).shape; }
  graph::ContractSpec spec_of(const Node& n) const {
    return graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
  }
  bool constant(ValueId v) const { return constant_[v.index]; }
  double copied(ValueId v) const {
    if (constant(v)) return 0;
    double n = 1;
    for (sym::Expr e : shape(v)) n *= static_cast<double>(g_.syms().as_constant(e).value_or(256));
    return n;
  }
  std::string name(ValueId v) const {
    const std::string& n = g_.value(v).name;
    const Node& from = g_.producer(v);
    const graph::Category category = info(from.op).category;
    if (n.empty() && (category == graph::Category::view || category == graph::Category::cast) &&
        from.operands.size() == 1)
      return name(from.operands[0]);
    return n.empty() ? fmt::format("v{}", v.index) : n;
  }

  // No value is made by two of them, and none needs itself.
  std::vector<const Joint*> compatible(const std::vector<const Joint*>& list) const {
    std::vector<const Joint*> out;
    std::set<ValueId> made;
    for (const Joint* j : list) {
      if (std::any_of(j->results.begin(), j->results.end(), [&](ValueId v) { return made.contains(v); })) continue;
      made.insert(j->results.begin(), j->results.end());
      out.push_back(j);
    }
    if (acyclic(out)) return out;
    std::vector<const Joint*> one_by_one;
    for (size_t k = 0; k < std::min<size_t>(out.size(), 32); ++k) {
      one_by_one.push_back(out[k]);
      if (!acyclic(one_by_one)) one_by_one.pop_back();
    }
    return one_by_one;
  }
  bool acyclic(const std::vector<const Joint*>& joints) const {
    try {
      copy(joints);
    } catch (const Cycle&) {
      return false;
    }
    return true;
  }

  // The view of contraction `id` from operand `side`.
  bool view(NodeId id, size_t side, View& out) const {
    const Node& n = g_.node(id);
    const auto spec = spec_of(n);
    const auto &mine = spec.operands[side], &other = spec.operands[1 - side];
    if (!distinct(mine) || !distinct(other) || n.operands[0] == n.operands[1]) return false;
    out = {n.operands[side], n.operands[1 - side], n.results[0], {}, {}, 0};
    std::map<std::string, int> by;
    for (size_t a = 0; a < mine.size(); ++a) by[mine[a]] = static_cast<int>(a);
    for (size_t a = 0; a < other.size(); ++a) {
      if (g_.syms().is(shape(out.other)[a], 1)) return false;  // it may stretch
      if (!has(mine, other[a])) {
        if (!has(spec.result, other[a])) return false;  // summed by itself
        by[other[a]] = own(out.owned++);
      }
      out.other_axes.push_back(by.at(other[a]));
    }
    for (const std::string& a : spec.result) out.result_axes.push_back(by.at(a));
    return out.owned > 0;
  }

  void shared_operands() {
    // The axes of the others and of the results may have any order.
    std::map<std::tuple<ValueId, std::vector<int>, std::vector<int>, DType>, std::vector<View>> groups;
    for (NodeId id : g_.node_ids())
      if (g_.node(id).op == Op::contract)
        for (size_t side : {0, 1}) {
          View v;
          if (view(id, side, v))
            groups[{v.shared, in_order(shared_axes(v.other_axes)), in_order(shared_axes(v.result_axes)),
                    g_.type(v.result).dtype}]
                .push_back(v);
        }
    for (auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      // What one computes must not be what another needs.
      std::vector<bool> needs(g_.value_count());
      for (const View& v : members) needs[v.result.index] = true;
      for (NodeId id : g_.node_ids()) {
        const Node& n = g_.node(id);
        if (std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return needs[v.index]; }))
          for (ValueId v : n.results) needs[v.index] = true;
      }
      std::vector<View> apart;
      for (const View& v : members)
        if (!needs[v.other.index] && !needs[v.shared.index]) apart.push_back(v);
      if (apart.size() >= 2) put_together(apart);
    }
  }

  // Copies the graph on demand, so that what is put together may stand anywhere. Throws Cycle.
  Graph copy(const std::vector<const Joint*>& joints) const {
    std::map<ValueId, const Joint*> special;
    for (const Joint* j : joints)
      for (ValueId v : j->results) special[v] = j;
    Builder b(g_.name(), g_.shared_syms());
    for (sym::Expr d : g_.dims()) {
      const auto range = b.syms().symbol_range(d);
      b.dim(b.syms().symbol_name(d), range.lo, range.hi);
    }
    Made made;
    for (ValueId v : g_.leaves()) {
      const Node& n = g_.producer(v);
      const std::string& leaf = n.attributes.get<std::string>("name");
      const auto& type = g_.type(v);
      made[v] = n.op == Op::input ? b.input(leaf, type.dtype, type.shape)
                : n.op == Op::scalar
                    ? b.scalar(leaf, type.dtype)
                    : b.constant(leaf, type.dtype, type.shape, n.attributes.get<graph::ConstantData>("data"));
    }
    std::set<ValueId> open;
    const Get get = [&](ValueId v) {
      if (const auto it = made.find(v); it != made.end()) return it->second;
      if (!open.insert(v).second) throw Cycle{};
      if (const auto it = special.find(v); it != special.end()) {
        it->second->make(b, get, made);
        return made.at(v);
      }
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

  // The axes of all members' other operands in one order, the own ones (as one axis) at `place`: as they lie where they
  // lie alike, else last.
  static std::vector<int> common_layout(const std::vector<View>& members, size_t& place) {
    const std::vector<int> first = shared_axes(members[0].other_axes);
    auto begin_of_own = [](const View& v) {
      return static_cast<size_t>(std::find_if(v.other_axes.begin(), v.other_axes.end(), [](int a) { return a < 0; }) -
                                 v.other_axes.begin());
    };
    place = begin_of_own(members[0]);
    const bool alike = std::all_of(members.begin(), members.end(), [&](const View& v) {
      const auto begin = v.other_axes.begin() + static_cast<long>(begin_of_own(v));
      return shared_axes(v.other_axes) == first && begin_of_own(v) == place &&
             std::all_of(begin, begin + static_cast<long>(v.owned), [](int a) { return a < 0; });
    });
    if (!alike) place = first.size();
    return alike ? first : in_order(first);
  }

  static ValueId reshaped(Builder& b, ValueId v, const graph::Shape& to) {
    if (b.type(v).shape == to) return v;
    const Node& from = b.graph().producer(v);
    if (from.op == Op::reshape && b.type(from.operands[0]).shape == to) return from.operands[0];
    return b.make(Op::reshape, {v}, {{"shape", to}});
  }
  static ValueId transposed(Builder& b, ValueId v, const std::vector<int>& from, const std::vector<int>& to) {
    std::vector<int64_t> perm;
    for (int a : to) perm.push_back(std::find(from.begin(), from.end(), a) - from.begin());
    return std::is_sorted(perm.begin(), perm.end()) ? v : b.make(Op::transpose, {v}, {{"perm", perm}});
  }

  void put_together(std::vector<View> members) {
    Joint joint;
    std::string before, after;
    for (const View& m : members) {
      joint.results.push_back(m.result);
      joint.copied += copied(m.other);
      before += fmt::format("{}{} * {}", before.empty() ? "" : "; ", name(m.shared), name(m.other));
      after += (after.empty() ? "" : " | ") + name(m.other);
    }
    const std::string shared = name(members[0].shared);
    joint.step = {"contractions side by side", shared, before, fmt::format("{} * [{}]", shared, after), ""};
    joint.make = [this, members = std::move(members)](Builder& b, const Get& get, Made& made) {
      const View& first = members[0];
      const ValueId x = get(first.shared);
      size_t place = 0;
      const std::vector<int> layout = common_layout(members, place);
      std::vector<ValueId> others;
      std::vector<sym::Expr> sizes;
      for (const View& m : members) {
        std::vector<int> order = layout;
        for (size_t n = 0; n < m.owned; ++n) order.insert(order.begin() + static_cast<long>(place + n), own(n));
        graph::Shape flat;
        sizes.push_back(b.syms().constant(1));
        for (int a : order) {
          const auto at = std::find(m.other_axes.begin(), m.other_axes.end(), a) - m.other_axes.begin();
          const sym::Expr e = shape(m.other)[static_cast<size_t>(at)];
          if (a >= 0) flat.push_back(e);
          if (a < 0) sizes.back() = b.syms().mul(sizes.back(), e);
        }
        flat.insert(flat.begin() + static_cast<long>(place), sizes.back());
        others.push_back(reshaped(b, transposed(b, get(m.other), m.other_axes, order), flat));
      }
      const ValueId joined = b.make(Op::concat, others, {{"axis", static_cast<int64_t>(place)}});
      auto letter = [](int axis) { return fmt::format("x{}", axis); };
      graph::ContractSpec spec;
      spec.operands.resize(2);
      for (size_t a = 0; a < shape(first.shared).size(); ++a) spec.operands[0].push_back(letter(static_cast<int>(a)));
      for (int a : layout) spec.operands[1].push_back(letter(a));
      spec.operands[1].insert(spec.operands[1].begin() + static_cast<long>(place), "n");
      const std::vector<int> kept = in_order(shared_axes(first.result_axes));
      for (int a : kept) spec.result.push_back(letter(a));
      spec.result.push_back("n");
      const ValueId product = b.make(Op::contract, {x, joined}, {{"spec", print(spec)}});
      const auto parts =
          b.make_all(Op::split, {product}, {{"axis", static_cast<int64_t>(kept.size())}, {"sizes", sizes}});
      for (size_t i = 0; i < members.size(); ++i) {
        const View& m = members[i];
        std::vector<int> order = kept;
        for (size_t n = 0; n < m.owned; ++n) order.push_back(own(n));
        graph::Shape apart;
        for (int a : order) {
          const auto at = std::find(m.result_axes.begin(), m.result_axes.end(), a) - m.result_axes.begin();
          apart.push_back(shape(m.result)[static_cast<size_t>(at)]);
        }
        made[m.result] = transposed(b, reshaped(b, parts[i], apart), order, m.result_axes);
      }
    };
    joints_.push_back(std::move(joint));
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
    std::array<std::array<ValueId, 2>, 2> operands;
    std::array<size_t, 2> axis{};
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
    Joint joint;
    joint.results = {n.results[0]};
    for (const auto& pair : operands)
      for (ValueId v : pair) joint.copied += copied(v);
    joint.step = {"sum of contractions as one", name(n.results[0]),
                  fmt::format("{} * {} + {} * {}", name(operands[0][0]), name(operands[0][1]), name(operands[1][0]),
                              name(operands[1][1])),
                  fmt::format("[{} | {}] * [{} | {}]", name(operands[0][0]), name(operands[1][0]), name(operands[0][1]),
                              name(operands[1][1])),
                  ""};
    joint.make = [this, operands, axis, spec = print(s), result = n.results[0]](Builder& b, const Get& get,
                                                                                Made& made) {
      ValueId joined[2];
      for (size_t side : {0, 1})
        joined[side] = b.make(Op::concat, {get(operands[0][side]), get(operands[1][side])},
                              {{"axis", static_cast<int64_t>(axis[side])}});
      made[result] = b.make(Op::contract, {joined[0], joined[1]}, {{"spec", spec}});
      if (!g_.value(result).name.empty()) b.set_name(made[result], g_.value(result).name);
    };
    joints_.push_back(std::move(joint));
    return true;
  }

  const Graph& g_;
  bool record_;
  std::vector<bool> constant_;  // by value
  std::vector<Joint> joints_;
};

}  // namespace

std::vector<SideBySide> side_by_side(const Graph& graph, bool record) { return Finder(graph, record).run(); }

}  // namespace cleave::algebra
