// Index form -> graph. Axis orders are chosen here: leaves keep theirs wherever a contraction reads them, results take
// the order that their user asks for.
#include <algorithm>
#include <set>

#include "algebra/index_form.hpp"
#include "graph/spec.hpp"

namespace cleave::algebra {

using graph::Attributes;
using graph::Graph;
using graph::Op;
using graph::ValueId;

namespace {

using Order = std::vector<IndexId>;  // not sorted: the axes of a tensor

struct Tensor {
  ValueId value;
  Order order;
};

bool contains(const Order& order, IndexId i) { return std::find(order.begin(), order.end(), i) != order.end(); }

class Emitter {
 public:
  explicit Emitter(const Program& program)
      : program_(program),
        g_(*program.graph),
        form_(*program.form),
        b_(g_.name(), g_.shared_syms()),
        values_(g_.value_count()) {}

  Graph run(const std::vector<std::vector<Root>>& replaced) {
    for (sym::Expr d : g_.dims()) {
      if (program_.split && d == program_.split->replaced) continue;
      const auto range = b_.syms().symbol_range(d);
      b_.dim(b_.syms().symbol_name(d), range.lo, range.hi);
    }
    if (program_.split)
      for (uint32_t l : {program_.split->parts, program_.split->part}) {
        const sym::Expr e = form_.label(l).extent;
        const auto range = b_.syms().symbol_range(e);
        b_.dim(b_.syms().symbol_name(e), range.lo, range.hi);
      }
    for (ValueId v : g_.leaves()) {
      const auto& n = g_.producer(v);
      const std::string& name = n.attributes.get<std::string>("name");
      const auto& type = g_.type(v);
      // A constant has constant extents; one with a split axis is for the caller to give.
      if (n.op == Op::input || (n.op == Op::constant && program_.shapes.contains(v.index)))
        values_[v.index] = b_.input(name, type.dtype, program_.shape(v));
      else if (n.op == Op::scalar)
        values_[v.index] = b_.scalar(name, type.dtype);
      else
        values_[v.index] =
            b_.constant(name, type.dtype, program_.shape(v), n.attributes.get<graph::ConstantData>("data"));
    }
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const Step& step = program_.steps[s];
      if (step.barrier.valid())
        emit_barrier(g_.node(step.barrier));
      else
        emit_region(s < replaced.size() && !replaced[s].empty() ? replaced[s] : step.roots);
    }
    for (const auto& o : g_.outputs()) b_.output(o.name, values_[o.value.index]);
    return b_.take();
  }

 private:
  void emit_barrier(const graph::Node& n) {
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(values_[v.index]);
    const auto results = b_.make_all(n.op, operands, n.attributes);
    for (size_t i = 0; i < results.size(); ++i) values_[n.results[i].index] = results[i];
  }

  void emit_region(const std::vector<Root>& roots) {
    memo_.clear();
    groups_.clear();
    std::set<TermId> seen;
    for (const Root& r : roots) collect(r.term, seen);
    for (const Root& r : roots) {
      Order order;
      for (const Indices& axis : r.axes) order.insert(order.end(), axis.begin(), axis.end());
      values_[r.value.index] = finish(widen(emit(r.term, order), order), r);
      if (!g_.value(r.value).name.empty()) b_.set_name(values_[r.value.index], g_.value(r.value).name);
    }
  }

  void collect(TermId id, std::set<TermId>& seen) {
    if (!seen.insert(id).second) return;
    const Term& t = form_.at(id);
    for (TermId a : t.args) collect(a, seen);
    if (t.kind == Kind::scaled_sum) groups_[{t.args[0], t.bound}].members.push_back(id);
  }

  // To the type of the value that the root stands for.
  ValueId finish(ValueId v, const Root& root) {
    const auto& type = g_.type(root.value);
    std::vector<int64_t> added;
    bool plain = true;
    for (size_t a = 0; a < root.axes.size(); ++a) {
      if (root.axes[a].empty()) added.push_back(static_cast<int64_t>(a));
      plain &= root.axes[a].size() <= 1;
    }
    if (!plain)
      v = b_.make(Op::reshape, {v}, {{"shape", program_.shape(root.value)}});
    else if (!added.empty())
      v = b_.make(Op::unsqueeze, {v}, {{"axes", added}});
    return convert(v, type.dtype);
  }

  ValueId convert(ValueId v, DType to) { return b_.type(v).dtype == to ? v : b_.make(Op::cast, {v}, {{"dtype", to}}); }

  graph::Shape shape_of(const Order& order) const {
    graph::Shape s;
    for (IndexId i : order) s.push_back(form_.extent(i));
    return s;
  }

  // The tensor's axes in the order of `order`, which may have more; missing axes after the first have extent 1.
  ValueId align(const Tensor& t, const Order& order) {
    Order mine;
    for (IndexId i : order)
      if (contains(t.order, i)) mine.push_back(i);
    CHECK(mine.size() == t.order.size(), "an axis gets lost");
    ValueId v = t.value;
    if (mine != t.order) {
      std::vector<int64_t> perm;
      for (IndexId i : mine) perm.push_back(std::find(t.order.begin(), t.order.end(), i) - t.order.begin());
      v = b_.make(Op::transpose, {v}, {{"perm", perm}});
    }
    std::vector<int64_t> added;
    bool begun = false;
    int64_t at = 0;
    for (IndexId i : order) {
      const bool present = contains(t.order, i);
      if (present)
        begun = true;
      else if (begun)
        added.push_back(at);
      if (begun) ++at;
    }
    return added.empty() ? v : b_.make(Op::unsqueeze, {v}, {{"axes", added}});
  }

  // Exactly these axes, repeating the tensor along those it lacks.
  ValueId widen(const Tensor& t, const Order& order) {
    const ValueId v = align(t, order);
    return t.order.size() == order.size() ? v : b_.make(Op::broadcast, {v}, {{"shape", shape_of(order)}});
  }

  // The indices of a set, those in `hint` first and in its order, the others in the order of `rest`.
  static Order arrange(const Indices& set, const Order& hint, const Order& rest = {}) {
    Order out;
    for (const Order* list : {&hint, &rest, static_cast<const Order*>(&set)})
      for (IndexId i : *list)
        if (has(set, i) && !contains(out, i)) out.push_back(i);
    return out;
  }

  // What to ask of an argument: the user's order without the indices that are bound here, those last.
  static Order inner_hint(const Order& hint, const Indices& bound) {
    Order out;
    for (IndexId i : hint)
      if (!has(bound, i)) out.push_back(i);
    out.insert(out.end(), bound.begin(), bound.end());
    return out;
  }

  const Tensor& emit(TermId id, const Order& hint) {
    if (auto it = memo_.find(id); it != memo_.end()) return it->second;
    Tensor t = make(id, hint);
    return memo_.insert_or_assign(id, std::move(t)).first->second;
  }

  Tensor make(TermId id, const Order& hint) {
    const Term& t = form_.at(id);
    switch (t.kind) {
      case Kind::leaf: return leaf(t);
      case Kind::literal: return {b_.literal(t.value, t.dtype), {}};
      case Kind::extent:
        if (const auto c = form_.syms().as_constant(t.extent))
          return {b_.literal(static_cast<double>(*c), t.dtype), {}};
        return {b_.make(Op::extent, {}, {{"of", std::vector<sym::Expr>{t.extent}}, {"dtype", t.dtype}}), {}};
      case Kind::iota:
        return {b_.make(Op::iota, {}, {{"shape", shape_of(t.free)}, {"axis", int64_t{0}}, {"dtype", t.dtype}}), t.free};
      case Kind::map: return map(t, hint);
      case Kind::reduce: return reduce(id, t, hint);
      case Kind::contract: return contract(t, hint);
      case Kind::scaled_sum: return scaled(id, t, hint);
    }
    CHECK(false, "kind {}", static_cast<int>(t.kind));
  }

  Tensor leaf(const Term& t) {
    ValueId v = values_[t.source];
    Order order;
    std::vector<int64_t> ones;
    bool plain = true;
    for (size_t a = 0; a < t.axes.size(); ++a) {
      if (t.axes[a].empty()) ones.push_back(static_cast<int64_t>(a));
      plain &= t.axes[a].size() <= 1;
      order.insert(order.end(), t.axes[a].begin(), t.axes[a].end());
    }
    if (!plain)
      v = b_.make(Op::reshape, {v}, {{"shape", shape_of(order)}});
    else if (!ones.empty()) {
      // A region's result may have got these axes of extent 1 just before.
      const graph::Node& n = b_.graph().producer(v);
      const bool undo = n.op == Op::unsqueeze &&
                        graph::normalise_axes(n.attributes.get<std::vector<int64_t>>("axes"), t.axes.size()) == ones;
      v = undo ? n.operands[0] : b_.make(Op::squeeze, {v}, {{"axes", ones}});
    }
    return {convert(v, t.dtype), order};
  }

  Tensor map(const Term& t, const Order& hint) {
    // An operand whose order is already settled (a leaf, or what was emitted before) and that has all indices decides.
    std::vector<Tensor> args(t.args.size());
    Order order;
    bool full = false;
    for (bool settled : {true, false})
      for (size_t k = 0; k < t.args.size(); ++k) {
        const TermId a = t.args[k];
        if (args[k].value.valid() || (settled && form_.at(a).kind != Kind::leaf && !memo_.contains(a))) continue;
        args[k] = emit(a, full ? order : hint);
        if (!full && args[k].order.size() == t.free.size()) {
          order = args[k].order;
          full = true;
        }
      }
    if (!full) {
      Order rest;
      for (const Tensor& a : args) rest.insert(rest.end(), a.order.begin(), a.order.end());
      order = arrange(t.free, hint, rest);
    }
    std::vector<ValueId> operands;
    for (const Tensor& a : args) operands.push_back(align(a, order));
    if (t.op == Op::cast) return {convert(convert(operands[0], t.to), t.dtype), order};
    return {b_.make(t.op, std::move(operands)), order};
  }

  Tensor reduce(TermId id, const Term& t, const Order& hint) {
    if (t.op == Op::amax)
      if (auto it = groups_.find({t.args[0], t.bound}); it != groups_.end() && !it->second.busy) {
        group(it->first, it->second, hint);
        if (auto known = memo_.find(id); known != memo_.end()) return known->second;
      }
    Tensor a = emit(t.args[0], inner_hint(hint, t.bound));
    include(a, t.bound);
    std::vector<int64_t> axes;
    Order order;
    for (size_t i = 0; i < a.order.size(); ++i) {
      if (has(t.bound, a.order[i]))
        axes.push_back(static_cast<int64_t>(i));
      else
        order.push_back(a.order[i]);
    }
    return {b_.make_all(t.op, {a.value}, {{"axes", axes}}).at(t.source), order};
  }

  // Repeats the tensor along indices that it lacks.
  void include(Tensor& t, const Indices& wanted) {
    Order order = t.order;
    for (IndexId i : wanted)
      if (!contains(order, i)) order.push_back(i);
    if (order.size() == t.order.size()) return;
    t.value = widen(t, order);
    t.order = std::move(order);
  }

  // Index names for a spec: the label's name, numbered in order of appearance, so that the spec does not depend on
  // which copies of a label are meant.
  class Names {
   public:
    explicit Names(const Form& form) : form_(form) {}
    graph::IndexNames operator()(const Order& order) {
      graph::IndexNames out;
      for (IndexId i : order) {
        auto [it, fresh] = names_.emplace(i, "");
        if (fresh) {
          const int n = count_[form_.at(i).label]++;
          it->second = form_.label_of(i).name + (n ? "__" + std::to_string(n) : "");
        }
        out.push_back(it->second);
      }
      return out;
    }

   private:
    const Form& form_;
    std::map<IndexId, std::string> names_;
    std::map<uint32_t, int> count_;
  };

  Tensor contract(const Term& t, const Order& hint) {
    const Order inner = inner_hint(hint, t.bound);
    Tensor a = emit(t.args[0], inner), b = emit(t.args[1], inner);
    include(a, without(t.bound, unite(form_.free(t.args[0]), form_.free(t.args[1]))));
    Order rest = a.order;
    rest.insert(rest.end(), b.order.begin(), b.order.end());
    const Order order = arrange(t.free, hint, rest);
    // Rows first: the operand that has the first index of the result alone is the left one.
    for (IndexId i : order) {
      if (contains(a.order, i) == contains(b.order, i)) continue;
      if (contains(b.order, i)) std::swap(a, b);
      break;
    }
    Names names(form_);
    graph::ContractSpec spec;
    spec.operands = {names(a.order), names(b.order)};
    spec.result = names(order);
    return {b_.make(Op::contract, {a.value, b.value}, {{"spec", print(spec)}}), order};
  }

  struct Group {
    std::vector<TermId> members;
    bool busy = false;
  };
  using GroupKey = std::pair<TermId, Indices>;

  bool depends(TermId id, const GroupKey& key, std::map<TermId, bool>& known) const {
    auto [it, fresh] = known.emplace(id, false);
    if (!fresh) return it->second;
    const Term& t = form_.at(id);
    bool yes = (t.kind == Kind::scaled_sum || (t.kind == Kind::reduce && t.op == Op::amax)) && t.args[0] == key.first &&
               t.bound == key.second;
    for (TermId a : t.args) yes = yes || depends(a, key, known);
    return known[id] = yes;
  }

  Tensor scaled(TermId id, const Term& t, const Order& hint) {
    Group& g = groups_.at({t.args[0], t.bound});
    const GroupKey key{t.args[0], t.bound};
    std::map<TermId, bool> known;
    const bool alone = g.busy || (t.args.size() > 1 && depends(t.args[1], key, known));
    if (alone) {
      node(key, {id}, hint);
    } else {
      group(key, g, hint);
    }
    return memo_.at(id);
  }

  // One node for all sums over one (scores, indices), except those whose factors need its own results.
  void group(const GroupKey& key, Group& g, const Order& hint) {
    std::vector<TermId> now;
    std::map<TermId, bool> known;
    for (TermId m : g.members) {
      const Term& t = form_.at(m);
      if (!memo_.contains(m) && (t.args.size() < 2 || !depends(t.args[1], key, known))) now.push_back(m);
    }
    g.busy = true;
    if (!now.empty()) node(key, now, hint);
  }

  void node(const GroupKey& key, const std::vector<TermId>& members, const Order& hint) {
    const auto& [scores, bound] = key;
    const Order inner = inner_hint(hint, bound);
    Tensor s = emit(scores, inner);
    include(s, bound);
    std::vector<ValueId> operands{s.value};
    const Indices kept = without(form_.free(scores), bound);
    const Order maximum = arrange(kept, hint, s.order);
    Names names(form_);
    graph::ScaledReduceSpec spec;
    spec.scores = names(s.order);
    spec.maximum = names(maximum);
    std::vector<Order> orders{maximum};
    for (TermId m : members) {
      const Term& t = form_.at(m);
      const bool factor = t.args.size() > 1;
      Order rest = maximum;
      graph::IndexNames factor_names;
      if (factor) {
        const Tensor f = emit(t.args[1], inner);
        operands.push_back(convert(f.value, b_.type(s.value).dtype));
        factor_names = names(f.order);
        rest.insert(rest.end(), f.order.begin(), f.order.end());
      }
      orders.push_back(arrange(t.free, hint, rest));
      CHECK(!factor || !factor_names.empty(), "a factor without indices stays outside of a scaled sum");
      spec.sums.push_back({factor, factor_names, names(orders.back())});
    }
    const auto results = b_.make_all(Op::scaled_reduce, operands, {{"spec", print(spec)}});
    const TermId max = form_.reduce(Op::amax, bound, scores);
    memo_.try_emplace(max, Tensor{results[0], orders[0]});
    for (size_t i = 0; i < members.size(); ++i)
      memo_.insert_or_assign(members[i], Tensor{results[i + 1], orders[i + 1]});
  }

  const Program& program_;
  const Graph& g_;
  Form& form_;
  graph::Builder b_;
  std::vector<ValueId> values_;
  std::map<TermId, Tensor> memo_;
  std::map<GroupKey, Group> groups_;
};

}  // namespace

Graph emit(const Program& program, const std::vector<std::vector<Root>>& roots) { return Emitter(program).run(roots); }

}  // namespace cleave::algebra
