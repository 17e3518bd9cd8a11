#include "tune/restrict.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/spec.hpp"

namespace cleave::tune {

using graph::Attributes;
using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

using Extents = std::vector<int64_t>;
using Ints = std::vector<int64_t>;

Box whole(const Extents& extents) { return {Ints(extents.size(), 0), extents}; }

void unite(std::optional<Box>& into, const Box& b) {
  if (!into) {
    into = b;
    return;
  }
  for (size_t i = 0; i < b.lo.size(); ++i) {
    into->lo[i] = std::min(into->lo[i], b.lo[i]);
    into->hi[i] = std::max(into->hi[i], b.hi[i]);
  }
}

// For one node: what box of each operand a box of the results needs, and what box of the results comes out then.
struct Need {
  std::vector<Box> operands;
  Box result;
};

class Restrictor {
 public:
  Restrictor(const Graph& g, ValueId value, const Box& box, const Positions& positions)
      : g_(g), value_(value), positions_(positions), demand_(g.value_count()) {
    demand_[value.index] = box;
  }

  Restricted run() {
    const std::vector<NodeId> ids = g_.node_ids();
    for (auto it = ids.rbegin(); it != ids.rend(); ++it) visit(g_.node(*it));
    Builder b(g_.name(), g_.shared_syms());
    map_.resize(g_.value_count());
    Restricted out{graph::Graph(), {}, {}};
    for (NodeId id : ids) build(b, g_.node(id), out);
    b.output("part", map_[value_.index]);
    out.graph = b.take();
    return out;
  }

 private:
  Extents extents(ValueId v) const { return g_.extents(v); }

  // The demand of all results of a node together (they have one shape, or the node is kept whole).
  std::optional<Box> wanted(const Node& n) const {
    std::optional<Box> out;
    for (ValueId r : n.results)
      if (demand_[r.index]) {
        if (out && out->lo.size() != demand_[r.index]->lo.size()) return whole(extents(n.results[0]));
        unite(out, *demand_[r.index]);
      }
    return out;
  }

  // Axes pass through one to one except those listed, which are whole on both sides.
  Need pass(const Node& n, const Box& box, const std::vector<int64_t>& mixed) const {
    Need need{{}, box};
    for (int64_t a : mixed) {
      need.result.lo[static_cast<size_t>(a)] = 0;
      need.result.hi[static_cast<size_t>(a)] = extents(n.results[0])[static_cast<size_t>(a)];
    }
    for (ValueId v : n.operands) {
      Box b = need.result;
      const Extents e = extents(v);
      for (int64_t a : mixed) {
        b.lo[static_cast<size_t>(a)] = 0;
        b.hi[static_cast<size_t>(a)] = e[static_cast<size_t>(a)];
      }
      need.operands.push_back(std::move(b));
    }
    return need;
  }

  Need all(const Node& n) const {
    Need need{{}, whole(extents(n.results[0]))};
    for (ValueId v : n.operands) need.operands.push_back(whole(extents(v)));
    return need;
  }

  // Aligned at the last axis; an operand's axis of extent 1 is broadcast.
  Box broadcast_operand(ValueId v, const Box& box) const {
    const Extents e = extents(v);
    Box b = whole(e);
    const size_t skip = box.lo.size() - e.size();
    for (size_t i = 0; i < e.size(); ++i) {
      if (e[i] == 1) continue;
      b.lo[i] = box.lo[skip + i];
      b.hi[i] = box.hi[skip + i];
    }
    return b;
  }

  Need need_of(const Node& n, const Box& box) const {
    switch (graph::info(n.op).category) {
      case graph::Category::leaf:
        return {{}, n.op == Op::iota || n.op == Op::literal || n.op == Op::extent ? whole(extents(n.results[0])) : box};
      case graph::Category::elementwise:
      case graph::Category::cast: {
        Need need{{}, box};
        for (ValueId v : n.operands) need.operands.push_back(broadcast_operand(v, box));
        return need;
      }
      case graph::Category::contract: {
        const graph::ContractSpec spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
        std::map<std::string, std::pair<int64_t, int64_t>> at;
        for (size_t i = 0; i < spec.result.size(); ++i) at[spec.result[i]] = {box.lo[i], box.hi[i]};
        Need need{{}, box};
        for (size_t k = 0; k < n.operands.size(); ++k) {
          const Extents e = extents(n.operands[k]);
          Box b = whole(e);
          for (size_t i = 0; i < e.size(); ++i) {
            const auto it = at.find(spec.operands[k][i]);
            if (it == at.end() || e[i] == 1) continue;
            b.lo[i] = it->second.first;
            b.hi[i] = it->second.second;
          }
          need.operands.push_back(std::move(b));
        }
        return need;
      }
      case graph::Category::reduce: return reduction(n, box, graph::reduced_axes(n, extents(n.operands[0]).size()));
      case graph::Category::select:
        if (n.op == Op::argmax || n.op == Op::argmin) {
          const auto axes =
              graph::normalise_axes(Ints{n.attributes.get<int64_t>("axis")}, extents(n.operands[0]).size());
          return reduction(n, box, axes);
        }
        return along_axis(n, box);
      case graph::Category::scan: return along_axis(n, box);
      case graph::Category::gather: {
        const auto axis = static_cast<size_t>(n.attributes.get<int64_t>("axis") < 0
                                                  ? n.attributes.get<int64_t>("axis") +
                                                        static_cast<int64_t>(extents(n.operands[0]).size())
                                                  : n.attributes.get<int64_t>("axis"));
        const Extents data = extents(n.operands[0]), index = extents(n.operands[1]);
        Need need{{whole(data), whole(index)}, box};
        for (size_t i = 0; i < data.size(); ++i) {
          if (i == axis) continue;
          const size_t r = i < axis ? i : i + index.size() - 1;
          need.operands[0].lo[i] = box.lo[r];
          need.operands[0].hi[i] = box.hi[r];
        }
        for (size_t i = 0; i < index.size(); ++i) {
          need.operands[1].lo[i] = box.lo[axis + i];
          need.operands[1].hi[i] = box.hi[axis + i];
        }
        if (const auto reached = positions(n, need.operands[1]);
            reached && reached->first >= 0 && reached->second < data[axis]) {
          need.operands[0].lo[axis] = reached->first;
          need.operands[0].hi[axis] = reached->second + 1;
        }
        return need;
      }
      case graph::Category::view: return view(n, box);
      case graph::Category::composite:
      case graph::Category::dialect: break;
    }
    return all(n);
  }

  std::optional<std::pair<int64_t, int64_t>> positions(const Node& n, const Box& box) const {
    if (!positions_) return std::nullopt;
    const auto [it, fresh] = reached_.try_emplace(n.results[0].index);
    if (fresh) it->second = positions_(n.operands[1], box);
    return it->second;
  }

  // Axes that a reshape passes, merges or splits: neighbours on both sides whose extents have one product.
  struct Regrouped {
    size_t from, from_end, to, to_end;
  };
  static std::vector<Regrouped> regrouped(const Extents& e, const Extents& out) {
    std::vector<Regrouped> groups;
    size_t i = 0, j = 0;
    while (i < e.size() && j < out.size()) {
      Regrouped r{i, i + 1, j, j + 1};
      int64_t from = e[i], to = out[j];
      while (from != to) {
        size_t& end = from < to ? r.from_end : r.to_end;
        const Extents& more = from < to ? e : out;
        if (end == more.size()) return groups;
        (from < to ? from : to) *= more[end++];
      }
      groups.push_back(r);
      i = r.from_end, j = r.to_end;
    }
    return groups;
  }
  // The elements [lo, hi) in order of the axes [first, last) as a box of these, if need be with more elements: those
  // are then [lo, hi).
  static void box_of(const Extents& e, size_t first, size_t last, int64_t& lo, int64_t& hi, Box& box) {
    int64_t inner = 1, base = 0;
    for (size_t a = first; a < last; ++a) inner *= e[a];
    for (size_t a = first; a < last; ++a) {
      inner /= e[a];
      const int64_t begin = (lo - base) / inner, end = (hi - 1 - base) / inner + 1;
      box.lo[a] = begin, box.hi[a] = end;
      if (end - begin > 1) {
        lo = base + begin * inner, hi = base + end * inner;
        for (size_t rest = a + 1; rest < last; ++rest) box.lo[rest] = 0, box.hi[rest] = e[rest];
        return;
      }
      base += begin * inner;
    }
  }
  Need reshaped(const Extents& e, const Extents& out, const Box& box) const {
    Need need{{whole(e)}, whole(out)};
    const auto empty = [](const Extents& x) { return std::find(x.begin(), x.end(), 0) != x.end(); };
    if (empty(e) || empty(out) || box.lo == box.hi) return need;
    for (const Regrouped& g : regrouped(e, out)) {
      int64_t lo = 0, hi = 0;
      for (size_t a = g.to; a < g.to_end; ++a) lo = lo * out[a] + box.lo[a], hi = hi * out[a] + box.hi[a] - 1;
      ++hi;
      // Until both sides have the same elements.
      for (int64_t before = -1; before != hi - lo;) {
        before = hi - lo;
        box_of(out, g.to, g.to_end, lo, hi, need.result);
        box_of(e, g.from, g.from_end, lo, hi, need.operands[0]);
      }
    }
    return need;
  }

  Need reduction(const Node& n, const Box& box, const Ints& axes) const {
    const Extents e = extents(n.operands[0]);
    const bool keep = box.lo.size() == e.size();
    Need need{{whole(e)}, box};
    size_t r = 0;
    for (size_t i = 0; i < e.size(); ++i) {
      const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
      if (!reduced) {
        need.operands[0].lo[i] = box.lo[r];
        need.operands[0].hi[i] = box.hi[r];
      }
      if (!reduced || keep) ++r;
    }
    return need;
  }

  Need along_axis(const Node& n, const Box& box) const {
    return pass(n, box, graph::normalise_axes(Ints{n.attributes.get<int64_t>("axis")}, box.lo.size()));
  }

  Need view(const Node& n, const Box& box) const {
    const Extents e = extents(n.operands[0]);
    const auto axes = [&](const char* name) { return graph::normalise_axes(n.attributes.get<Ints>(name), e.size()); };
    switch (n.op) {
      case Op::transpose: {
        const Ints& perm = n.attributes.get<Ints>("perm");
        Need need{{whole(e)}, box};
        for (size_t i = 0; i < perm.size(); ++i) {
          const auto from = static_cast<size_t>(perm[i] < 0 ? perm[i] + static_cast<int64_t>(e.size()) : perm[i]);
          need.operands[0].lo[from] = box.lo[i];
          need.operands[0].hi[from] = box.hi[i];
        }
        return need;
      }
      case Op::broadcast: return {{broadcast_operand(n.operands[0], box)}, box};
      case Op::reshape: return reshaped(e, extents(n.results[0]), box);
      case Op::slice:
      case Op::flip: return pass(n, box, axes("axes"));
      case Op::concat:
      case Op::split: return along_axis(n, box);
      case Op::pad: {
        const Ints &low = n.attributes.get<Ints>("low"), &high = n.attributes.get<Ints>("high");
        Ints mixed;
        for (size_t i = 0; i < e.size(); ++i)
          if (low[i] || high[i]) mixed.push_back(static_cast<int64_t>(i));
        return pass(n, box, mixed);
      }
      default: return all(n);  // squeeze, unsqueeze are handled by visit(); windows are whole
    }
  }

  Need squeeze(const Node& n, const Box& box) const {
    // The longer side has the axes of extent 1 that the shorter lacks.
    const Extents e = extents(n.operands[0]), out = extents(n.results[0]);
    const bool drop = n.op == Op::squeeze;
    const Ints axes = graph::normalise_axes(n.attributes.get<Ints>("axes"), std::max(e.size(), out.size()));
    Need need{{whole(e)}, box};
    size_t in_axis = 0, out_axis = 0;
    for (size_t i = 0; i < std::max(e.size(), out.size()); ++i) {
      if (std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i))) {
        (drop ? in_axis : out_axis)++;
        continue;
      }
      need.operands[0].lo[in_axis] = box.lo[out_axis];
      need.operands[0].hi[in_axis++] = box.hi[out_axis++];
    }
    return need;
  }

  Need needs(const Node& n, const Box& box) const {
    if (n.op == Op::squeeze || n.op == Op::unsqueeze) return squeeze(n, box);
    if (n.results.size() > 1 && extents(n.results[0]).size() != box.lo.size()) return all(n);
    return need_of(n, box);
  }

  void visit(const Node& n) {
    const std::optional<Box> box = wanted(n);
    if (!box) return;
    const Need need = needs(n, *box);
    for (size_t k = 0; k < n.operands.size(); ++k) unite(demand_[n.operands[k].index], need.operands[k]);
  }

  // Slices `value`, which covers `has`, down to `box`.
  ValueId crop(Builder& b, ValueId value, const Box& has, const Box& box) const {
    Ints axes;
    std::vector<sym::Expr> starts, stops;
    for (size_t i = 0; i < box.lo.size(); ++i) {
      if (has.lo[i] == box.lo[i] && has.hi[i] == box.hi[i]) continue;
      axes.push_back(static_cast<int64_t>(i));
      starts.push_back(b.syms().constant(box.lo[i] - has.lo[i]));
      stops.push_back(b.syms().constant(box.hi[i] - has.lo[i]));
    }
    if (axes.empty()) return value;
    return b.make(Op::slice, {value}, {{"axes", axes}, {"starts", starts}, {"stops", stops}});
  }

  void build(Builder& b, const Node& n, Restricted& out) {
    const std::optional<Box> box = wanted(n);
    if (!box) return;
    const ValueId first = n.results[0];
    if (n.op == Op::input || n.op == Op::constant || n.op == Op::scalar) {
      const auto& name = n.attributes.get<std::string>("name");
      if (n.op == Op::scalar) {
        map_[first.index] = b.scalar(name, g_.type(first).dtype);
      } else {
        Ints extents;
        for (size_t i = 0; i < box->lo.size(); ++i) extents.push_back(box->hi[i] - box->lo[i]);
        map_[first.index] = b.input(name, g_.type(first).dtype, b.shape(std::span<const int64_t>(extents)));
      }
      out.of.push_back(first);
      out.boxes.push_back(*box);
      return;
    }
    const Need need = needs(n, *box);
    std::vector<ValueId> operands;
    for (size_t k = 0; k < n.operands.size(); ++k)
      operands.push_back(crop(b, map_[n.operands[k].index], *demand_[n.operands[k].index], need.operands[k]));
    if (n.op == Op::gather)
      if (const auto it = reached_.find(first.index); it != reached_.end() && it->second && it->second->first > 0) {
        const DType d = g_.type(n.operands[1]).dtype;
        operands[1] = b.make(Op::sub, {operands[1], b.literal(static_cast<double>(it->second->first), d)});
      }
    Attributes attributes = n.attributes;
    if (n.op == Op::broadcast || n.op == Op::reshape) {
      Ints extents;
      for (size_t i = 0; i < need.result.lo.size(); ++i) extents.push_back(need.result.hi[i] - need.result.lo[i]);
      attributes.set("shape", b.shape(std::span<const int64_t>(extents)));
    }
    const std::vector<ValueId> results = b.make_all(n.op, operands, attributes);
    for (size_t i = 0; i < results.size(); ++i) {
      const std::optional<Box>& d = demand_[n.results[i].index];
      if (!d) continue;
      // Results of one node that differ in shape (split) are whole where they differ.
      Box has = need.result;
      const Extents e = extents(n.results[i]);
      for (size_t a = 0; a < e.size(); ++a)
        if (has.lo[a] == 0 && has.hi[a] == extents(first)[a]) has.hi[a] = e[a];
      map_[n.results[i].index] = crop(b, results[i], has, *d);
    }
  }

  const Graph& g_;
  ValueId value_;
  const Positions& positions_;
  mutable std::map<uint32_t, std::optional<std::pair<int64_t, int64_t>>> reached_;  // of each gather
  std::vector<std::optional<Box>> demand_;
  std::vector<ValueId> map_;
};

double count(const Graph& g, ValueId v) {
  double n = 1;
  for (int64_t e : g.extents(v)) n *= static_cast<double>(e);
  return n;
}

}  // namespace

Restricted restrict_value(const Graph& graph, ValueId value, const Box& box, const Positions& positions) {
  return Restrictor(graph, value, box, positions).run();
}

Restricted restrict_to(const Graph& graph, size_t output, const Box& box, const Positions& positions) {
  return restrict_value(graph, graph.outputs().at(output).value, box, positions);
}

double evaluation_steps(const Graph& g) {
  double steps = 0;
  for (NodeId id : g.node_ids()) {
    const Node& n = g.node(id);
    if (n.op == Op::contract) {
      const graph::ContractSpec spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
      std::map<std::string, int64_t> extent;
      for (size_t k = 0; k < n.operands.size(); ++k) {
        const Extents e = g.extents(n.operands[k]);
        for (size_t i = 0; i < e.size(); ++i) extent[spec.operands[k][i]] = std::max(extent[spec.operands[k][i]], e[i]);
      }
      double product = 1;
      for (const auto& [name, e] : extent) product *= static_cast<double>(e);
      steps += product;
      continue;
    }
    for (ValueId v : n.results) steps += count(g, v);
    if (graph::info(n.op).category == graph::Category::reduce || graph::info(n.op).category == graph::Category::scan ||
        graph::info(n.op).category == graph::Category::select)
      steps += count(g, n.operands[0]);
  }
  return steps;
}

}  // namespace cleave::tune
