#include "algebra/index_form.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "graph/spec.hpp"

namespace cleave::algebra {

using graph::Category;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

// Axes of values as sets of equal dimensions (union-find), each possibly refined into a list of others.
class Dims {
 public:
  explicit Dims(sym::Pool& syms) : syms_(syms) {}

  int add(sym::Expr extent) {
    parent_.push_back(static_cast<int>(parent_.size()));
    refined_.emplace_back();
    extent_.push_back(extent);
    return static_cast<int>(parent_.size()) - 1;
  }
  int root(int d) {
    while (parent_[d] != d) d = parent_[d] = parent_[parent_[d]];
    return d;
  }
  sym::Expr extent(int d) { return extent_[root(d)]; }
  std::vector<int> flatten(int d) {
    d = root(d);
    if (refined_[d].empty()) return {d};
    std::vector<int> out;
    for (int part : refined_[d])
      for (int f : flatten(part)) out.push_back(f);
    return out;
  }
  std::vector<int> flatten(const std::vector<int>& list) {
    std::vector<int> out;
    for (int d : list)
      for (int f : flatten(d)) out.push_back(f);
    return out;
  }
  void refine(int root, std::vector<int> into) { refined_[static_cast<size_t>(root)] = std::move(into); }
  // Makes two row-major lists of equal product the same list; false where they have no common refinement.
  bool unify(const std::vector<int>& a, const std::vector<int>& b) {
    for (int guard = 0; guard < 64; ++guard) {
      std::vector<int> fa = flatten(a), fb = flatten(b);
      if (fa == fb) return true;
      if (fa.size() == 1 && fb.size() == 1) {
        parent_[fa[0]] = fb[0];
        return true;
      }
      if (fa.size() == 1 || fb.size() == 1) {
        const int one = fa.size() == 1 ? fa[0] : fb[0];
        const std::vector<int>& many = fa.size() == 1 ? fb : fa;
        if (std::find(many.begin(), many.end(), one) != many.end()) return false;
        refined_[one] = many;
        return true;
      }
      // From the innermost: the first pair that differs is joined, or split where one constant divides the other.
      while (!fa.empty() && !fb.empty() && fa.back() == fb.back()) fa.pop_back(), fb.pop_back();
      if (fa.empty() || fb.empty()) return false;
      const int x = fa.back(), y = fb.back();
      if (extent_[x] == extent_[y]) {
        parent_[x] = y;
        continue;
      }
      const auto ex = syms_.as_constant(extent_[x]), ey = syms_.as_constant(extent_[y]);
      if (!ex || !ey || *ex < 1 || *ey < 1) return false;
      const int big = *ex > *ey ? x : y, small = *ex > *ey ? y : x;
      const int64_t q = std::max(*ex, *ey) / std::min(*ex, *ey);
      if (std::max(*ex, *ey) % std::min(*ex, *ey) != 0) return false;
      const int outer = add(syms_.constant(q));
      refined_[big] = {outer, small};
    }
    return false;
  }

 private:
  sym::Pool& syms_;
  std::vector<int> parent_;
  std::vector<std::vector<int>> refined_;
  std::vector<sym::Expr> extent_;
};

bool repeats(const graph::IndexNames& names) {
  return std::set<std::string>(names.begin(), names.end()).size() != names.size();
}

class Reader {
 public:
  Reader(const Graph& graph, const ReadOptions& options)
      : g_(graph), options_(options), syms_(graph.syms()), dims_(syms_) {
    program_.graph = &graph;
    program_.form = std::make_shared<Form>(graph.shared_syms());
    for (uint32_t v = 0; v < graph.value_count(); ++v)
      if (const std::string& name = graph.value(ValueId(v)).name; !name.empty()) program_.form->name_source(v, name);
  }

  Program run() {
    bool reduced_inputs = false;
    for (ValueId v : g_.leaves()) {
      const DType d = g_.type(v).dtype;
      reduced_inputs |= d == DType::f16 || d == DType::bf16;
    }
    free_casts_ = options_.rounding_free && reduced_inputs;
    axis_dims_.resize(g_.value_count());
    for (uint32_t v = 0; v < g_.value_count(); ++v)
      for (sym::Expr e : g_.type(ValueId(v)).shape) axis_dims_[v].push_back(syms_.is(e, 1) ? -1 : dims_.add(e));
    find_wrapping();
    barrier_.resize(g_.node_count());
    for (NodeId id : g_.node_ids()) barrier_[id.index] = !understood(id) || !link(id);
    find_made();
    find_kept();
    if (options_.split >= 0) split();
    place();
    return std::move(program_);
  }

 private:
  bool is_leaf(NodeId id) const { return info(g_.node(id).op).category == Category::leaf; }
  // What a region makes for itself: numbers and index values, and what is computed from these element by element, as a
  // mask that all layers of a model share.
  bool is_made(NodeId id) const { return made_[id.index]; }
  bool is_ordinary(NodeId id) const { return !barrier_[id.index] && !is_leaf(id) && !is_made(id); }
  void find_made() {
    made_.resize(g_.node_count());
    for (NodeId id : g_.node_ids()) {
      const Node& n = g_.node(id);
      const Category c = info(n.op).category;
      made_[id.index] = c == Category::leaf
                            ? n.op == Op::literal || n.op == Op::extent || n.op == Op::iota
                            : !barrier_[id.index] &&
                                  (c == Category::elementwise || c == Category::cast || c == Category::view) &&
                                  std::all_of(n.operands.begin(), n.operands.end(),
                                              [&](ValueId v) { return is_made(g_.value(v).node); });
    }
  }
  // Barriers keep the shapes that they were given: no class that one of their axes is made of can become a pair.
  void find_kept() {
    for (NodeId id : g_.node_ids()) {
      if (!barrier_[id.index]) continue;
      const Node& n = g_.node(id);
      std::vector<ValueId> seen = n.operands;
      seen.insert(seen.end(), n.results.begin(), n.results.end());
      for (ValueId v : seen)
        for (int dim : axis_dims_[v.index])
          if (dim >= 0)
            for (int part : dims_.flatten(dim)) program_.kept.emplace(part, info(n.op).name);
    }
  }
  size_t rank(ValueId v) const { return g_.type(v).shape.size(); }

  // Integers wrap, reals do not: what integer arithmetic gives is another number in a type that is wider or real. Index
  // values and extents, and what is made of them and numbers alone, stay far from the ends of 32 bits.
  void find_wrapping() {
    counts_.resize(g_.value_count());
    may_wrap_.resize(g_.value_count());
    for (NodeId id : g_.node_ids()) {
      const Node& n = g_.node(id);
      const Category c = info(n.op).category;
      const auto any = [&](const std::vector<bool>& of) {
        return std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return of[o.index]; });
      };
      const bool all_count =
          std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return counts_[o.index]; });
      for (ValueId v : n.results) {
        const DType d = g_.type(v).dtype;
        counts_[v.index] =
            c == Category::leaf
                ? n.op == Op::literal || n.op == Op::extent || n.op == Op::iota
                : (c == Category::elementwise || c == Category::cast || c == Category::view) && all_count;
        if (!is_integer(d) || c == Category::leaf || c == Category::gather) continue;
        const bool selects = c == Category::view || n.op == Op::max || n.op == Op::min || n.op == Op::where ||
                             n.op == Op::amax || n.op == Op::amin;
        if (c == Category::cast) {
          const DType from = g_.type(n.operands[0]).dtype;
          may_wrap_[v.index] = is_integer(from) && (any(may_wrap_) || d != promote(from, d));
        } else {
          may_wrap_[v.index] = selects ? any(may_wrap_) : byte_size(d) < 4 || !counts_[v.index];
        }
      }
    }
  }

  bool understood(NodeId id) const {
    const Node& n = g_.node(id);
    switch (info(n.op).category) {
      case Category::leaf:
      case Category::elementwise: return true;
      case Category::cast: return g_.type(n.results[0]).dtype == DType::boolean || !may_wrap_[n.operands[0].index];
      case Category::contract: {
        const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
        return !repeats(spec.operands[0]) && !repeats(spec.operands[1]);
      }
      case Category::reduce: return n.op != Op::moments || !n.operands.empty();
      case Category::view:
        return n.op == Op::reshape || n.op == Op::transpose || n.op == Op::broadcast || n.op == Op::squeeze ||
               n.op == Op::unsqueeze;
      case Category::gather:
      case Category::scan:
      case Category::select:
      case Category::composite:
      case Category::dialect: return false;
    }
    return false;
  }

  bool join(int a, int b) { return a < 0 || b < 0 || dims_.unify({a}, {b}); }

  // For a view: the source axis of each result axis, or -1. (Not for reshape.)
  std::vector<int> view_map(const Node& n) const {
    const size_t in = rank(n.operands[0]), out = rank(n.results[0]);
    std::vector<int> map(out, -1);
    if (n.op == Op::transpose) {
      const auto& perm = n.attributes.get<std::vector<int64_t>>("perm");
      for (size_t i = 0; i < out; ++i) map[i] = static_cast<int>(perm[i]);
    } else if (n.op == Op::broadcast) {
      for (size_t i = 0; i < in; ++i) map[out - in + i] = static_cast<int>(i);
    } else {
      const auto axes = graph::normalise_axes(n.attributes.get<std::vector<int64_t>>("axes"), std::max(in, out));
      auto listed = [&](size_t i) { return std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i)); };
      if (n.op == Op::squeeze) {
        for (size_t i = 0, o = 0; i < in; ++i)
          if (!listed(i)) map[o++] = static_cast<int>(i);
      } else {
        for (size_t o = 0, i = 0; o < out; ++o)
          if (!listed(o)) map[o] = static_cast<int>(i++);
      }
    }
    return map;
  }

  // A reshape as groups of source and result axes with equal products; axes of extent 1 are in no group.
  struct Group {
    std::vector<size_t> in, out;
  };
  std::optional<std::vector<Group>> reshape_groups(const Node& n) const {
    const graph::Shape &x = g_.type(n.operands[0]).shape, &y = g_.type(n.results[0]).shape;
    std::vector<size_t> a, b;
    for (size_t i = 0; i < x.size(); ++i)
      if (!syms_.is(x[i], 1)) a.push_back(i);
    for (size_t i = 0; i < y.size(); ++i)
      if (!syms_.is(y[i], 1)) b.push_back(i);
    std::vector<Group> groups;
    size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
      bool found = false;
      for (size_t total = 2; !found && total <= a.size() - i + b.size() - j; ++total)
        for (size_t p = 1; !found && p < total; ++p) {
          const size_t q = total - p;
          if (i + p > a.size() || j + q > b.size()) continue;
          sym::Expr left = syms_.constant(1), right = left;
          for (size_t k = 0; k < p; ++k) left = syms_.mul(left, x[a[i + k]]);
          for (size_t k = 0; k < q; ++k) right = syms_.mul(right, y[b[j + k]]);
          if (left != right) continue;
          groups.push_back({{a.begin() + static_cast<long>(i), a.begin() + static_cast<long>(i + p)},
                            {b.begin() + static_cast<long>(j), b.begin() + static_cast<long>(j + q)}});
          i += p, j += q;
          found = true;
        }
      if (!found) return std::nullopt;
    }
    if (i != a.size() || j != b.size()) return std::nullopt;
    return groups;
  }

  // Result axis of operand axis `a` in an elementwise node; operand and result align at the end.
  static size_t aligned(size_t out_rank, size_t in_rank, size_t a) { return out_rank - in_rank + a; }

  bool link(NodeId id) {
    const Node& n = g_.node(id);
    auto d = [&](ValueId v) -> std::vector<int>& { return axis_dims_[v.index]; };
    bool ok = true;
    switch (info(n.op).category) {
      case Category::elementwise:
      case Category::cast: {
        const auto& out = d(n.results[0]);
        for (ValueId v : n.operands)
          for (size_t a = 0; a < rank(v); ++a) ok &= join(d(v)[a], out[aligned(out.size(), rank(v), a)]);
        return ok;
      }
      case Category::contract: {
        const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
        std::map<std::string, int> by;
        auto visit = [&](const graph::IndexNames& names, const std::vector<int>& list) {
          for (size_t a = 0; a < names.size(); ++a) {
            if (list[a] < 0) continue;
            spec_names_.emplace_back(list[a], names[a]);
            auto [it, fresh] = by.emplace(names[a], list[a]);
            if (!fresh) ok &= join(it->second, list[a]);
          }
        };
        visit(spec.operands[0], d(n.operands[0]));
        visit(spec.operands[1], d(n.operands[1]));
        visit(spec.result, d(n.results[0]));
        return ok;
      }
      case Category::reduce: {
        const size_t r = rank(n.operands[0]);
        const auto axes = graph::reduced_axes(n, r);
        const bool keep = n.attributes.get_or("keepdims", false);
        for (ValueId result : n.results)
          for (size_t a = 0, o = 0; a < r; ++a) {
            const bool gone = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(a));
            if (!gone) ok &= join(d(n.operands[0])[a], d(result)[o]);
            if (!gone || keep) ++o;
          }
        return ok;
      }
      case Category::view: {
        if (n.op == Op::reshape) {
          const auto groups = reshape_groups(n);
          if (!groups) return false;
          for (const Group& group : *groups) {
            std::vector<int> a, b;
            for (size_t i : group.in) a.push_back(d(n.operands[0])[i]);
            for (size_t i : group.out) b.push_back(d(n.results[0])[i]);
            ok &= dims_.unify(a, b);
          }
          return ok;
        }
        const auto map = view_map(n);
        for (size_t o = 0; o < map.size(); ++o)
          if (map[o] >= 0) ok &= join(d(n.operands[0])[static_cast<size_t>(map[o])], d(n.results[0])[o]);
        return ok;
      }
      default: return true;
    }
  }

  // The axes of one class become pairs (part, place in it). An extent that is a dimension is replaced everywhere.
  void split() {
    const int root = dims_.root(options_.split);
    const sym::Expr extent = dims_.extent(root);
    const std::string name = label_stem(root);
    const bool symbol = syms_.kind(extent) == sym::Kind::symbol;
    const sym::Interval range =
        symbol ? syms_.symbol_range(extent) : sym::Interval{1, syms_.as_constant(extent).value_or(1)};
    auto fresh_symbol = [&](std::string stem, sym::Interval r) {
      auto taken = [&](sym::Expr d) { return syms_.symbol_name(d) == stem; };
      while (std::any_of(g_.dims().begin(), g_.dims().end(), taken)) stem += "_";
      return syms_.symbol(stem, r);
    };
    const sym::Expr parts = fresh_symbol(name + "_parts", {1, std::max<int64_t>(range.hi, 1)});
    const sym::Expr part = fresh_symbol(name + "_part", {std::min<int64_t>(range.lo, 1), range.hi});
    if (symbol) replaced_.emplace(extent, syms_.mul(parts, part));
    const int p = dims_.add(parts), q = dims_.add(part);
    dims_.refine(root, {p, q});
    program_.split = Split{name, label_for(p), label_for(q), symbol ? extent : sym::Expr{}};
    for (uint32_t v = 0; v < g_.value_count(); ++v) {
      const graph::Shape& before = g_.type(ValueId(v)).shape;
      graph::Shape shape;
      for (size_t a = 0; a < before.size(); ++a) {
        if (axis_dims_[v][a] < 0) {
          shape.push_back(before[a]);
          continue;
        }
        const auto list = dims_.flatten(axis_dims_[v][a]);
        sym::Expr e = syms_.substitute(before[a], replaced_);
        if (std::find(list.begin(), list.end(), p) != list.end()) {
          e = syms_.constant(1);
          for (int d : list) e = syms_.mul(e, syms_.substitute(dims_.extent(d), replaced_));
        }
        shape.push_back(e);
      }
      if (shape != before) program_.shapes.emplace(v, std::move(shape));
    }
  }

  // Levels: an ordinary node stands at the highest level of its operands; results of barriers and of cut values are one
  // higher for their users. Ordinary nodes of one level that hang together are a region.
  void place() {
    std::set<ValueId> cuts = choose_cuts();
    std::vector<int> level(g_.node_count()), seen(g_.value_count());
    int top = 0;
    for (NodeId id : g_.node_ids()) {
      const Node& n = g_.node(id);
      int l = 0;
      for (ValueId v : n.operands) l = std::max(l, seen[v.index]);
      const bool barrier = barrier_[id.index];
      level[id.index] = barrier ? l + 1 : l;
      for (ValueId v : n.results) seen[v.index] = level[id.index] + (!barrier && cuts.contains(v) ? 1 : 0);
      top = std::max(top, level[id.index]);
    }
    // Regions: union-find over ordinary nodes of one level that share a value made at that level.
    std::vector<uint32_t> parent(g_.node_count());
    std::iota(parent.begin(), parent.end(), 0u);
    auto find = [&](uint32_t x) {
      while (parent[x] != x) x = parent[x] = parent[parent[x]];
      return x;
    };
    auto ordinary = [&](NodeId id) { return is_ordinary(id); };
    for (NodeId id : g_.node_ids())
      if (ordinary(id))
        for (ValueId v : g_.node(id).operands) {
          const NodeId from = g_.value(v).node;
          if (ordinary(from) && level[from.index] == level[id.index] && !cuts.contains(v))
            parent[find(from.index)] = find(id.index);
        }
    // Roots: values read from outside of their region, and outputs.
    std::vector<bool> root(g_.value_count());
    for (NodeId id : g_.node_ids())
      for (ValueId v : g_.node(id).operands) {
        const NodeId from = g_.value(v).node;
        if (is_made(from))
          root[v.index] = root[v.index] || barrier_[id.index];
        else if (!is_leaf(from) && !barrier_[from.index] && (!ordinary(id) || find(from.index) != find(id.index)))
          root[v.index] = true;
      }
    for (const auto& o : g_.outputs()) root[o.value.index] = !barrier_[g_.value(o.value).node.index];
    std::map<std::pair<int, uint32_t>, std::vector<ValueId>> regions;
    std::map<int, std::vector<NodeId>> barriers;
    for (NodeId id : g_.node_ids()) {
      if (barrier_[id.index])
        barriers[level[id.index]].push_back(id);
      else
        for (ValueId v : g_.node(id).results)
          if (root[v.index]) regions[{level[id.index], find(id.index)}].push_back(v);
    }
    for (int l = 0; l <= top; ++l) {
      for (NodeId id : barriers[l]) program_.steps.push_back({id, {}});
      // A region of one level may read a root of another region of that level only across a cut, which is a level up.
      for (auto it = regions.lower_bound({l, 0}); it != regions.end() && it->first.first == l; ++it) {
        Step step;
        inside_ = [&, region = it->first](ValueId v) {
          const NodeId from = g_.value(v).node;
          if (is_made(from)) return true;
          return ordinary(from) && level[from.index] == region.first && find(from.index) == region.second;
        };
        cut_ = &cuts;
        memo_.clear();
        for (ValueId v : it->second) {
          Axes axes = default_axes(v);
          const TermId t = expand(v, axes);
          step.roots.push_back({v, t, std::move(axes)});
        }
        program_.steps.push_back(std::move(step));
      }
    }
  }

  // Values at which large graphs are cut: walking in topological order, after each `max_region_nodes` ordinary nodes
  // the place of the last half where the fewest values cross.
  std::set<ValueId> choose_cuts() const {
    std::set<ValueId> cuts = options_.cuts;
    std::vector<uint32_t> last_use(g_.value_count(), 0), order;
    for (NodeId id : g_.node_ids())
      for (ValueId v : g_.node(id).operands) last_use[v.index] = id.index;
    for (const auto& o : g_.outputs()) last_use[o.value.index] = static_cast<uint32_t>(g_.node_count());
    auto ordinary = [&](NodeId id) { return is_ordinary(id); };
    auto crossing = [&](uint32_t after, uint32_t since) {
      std::vector<ValueId> out;
      for (uint32_t k = since; k <= after; ++k)
        if (ordinary(NodeId(k)))
          for (ValueId v : g_.node(NodeId(k)).results)
            if (last_use[v.index] > after) out.push_back(v);
      return out;
    };
    for (NodeId id : g_.node_ids())
      if (ordinary(id)) order.push_back(id.index);
    // First at residual streams: one value crosses, a sum that is read several times (so it is stored anyway), and
    // reductions lie behind it. Not where an extremum or an exponential reads it: scores belong to their softmax.
    const auto uses = g_.use_counts();
    std::vector<bool> splits(g_.value_count());
    for (NodeId id : g_.node_ids())
      for (ValueId v : g_.node(id).operands) {
        const Op op = g_.node(id).op;
        if (op == Op::amax || op == Op::amin || op == Op::exp || barrier_[id.index]) splits[v.index] = true;
      }
    size_t begin = 0;
    bool reduction = false;
    for (size_t k = 0; order.size() > options_.max_region_nodes / 2 && k + 1 < order.size(); ++k) {
      const Node& n = g_.node(NodeId(order[k]));
      const Category category = info(n.op).category;
      reduction = reduction || category == Category::contract || category == Category::reduce;
      if (k - begin > 4 * options_.max_region_nodes) begin = k;  // no stream here
      if (!reduction || k - begin < 5 || n.op != Op::add || uses[n.results[0].index] < 2 || splits[n.results[0].index])
        continue;
      const auto crossed = crossing(order[k], order[begin]);
      if (crossed.size() != 1 || crossed[0] != n.results[0]) continue;
      cuts.insert(crossed[0]);
      begin = k + 1;
      reduction = false;
    }
    begin = 0;
    while (order.size() - begin > options_.max_region_nodes) {
      size_t best = begin + options_.max_region_nodes - 1, width = ~size_t{0};
      for (size_t k = begin + options_.max_region_nodes / 3; k < begin + options_.max_region_nodes; ++k) {
        const size_t w = crossing(order[k], order[begin]).size();
        if (w <= width) width = w, best = k;
      }
      // A stream among the candidates has already been cut.
      size_t stream = 0;
      for (size_t k = begin; k < begin + options_.max_region_nodes; ++k)
        for (ValueId v : g_.node(NodeId(order[k])).results)
          if (cuts.contains(v)) stream = k + 1;
      if (stream > begin) {
        begin = stream;
        continue;
      }
      for (ValueId v : crossing(order[best], order[begin])) cuts.insert(v);
      begin = best + 1;
    }
    return cuts;
  }

  // What people call a dimension: as the first contraction does, or as its extent, or x.
  std::string label_stem(int root) {
    const auto spec = std::find_if(spec_names_.begin(), spec_names_.end(),
                                   [&](const auto& p) { return dims_.root(p.first) == root; });
    if (spec != spec_names_.end()) return spec->second;
    const sym::Expr e = dims_.extent(root);
    std::string stem = syms_.kind(e) == sym::Kind::symbol ? syms_.symbol_name(e) : "x";
    std::transform(stem.begin(), stem.end(), stem.begin(), [](unsigned char c) { return std::tolower(c); });
    return stem;
  }

  uint32_t label_for(int dim) {
    const int r = dims_.root(dim);
    auto [it, fresh] = label_of_.emplace(r, 0);
    if (fresh) {
      const sym::Expr e = syms_.substitute(dims_.extent(r), replaced_);
      std::string stem = label_stem(r);
      const std::string base = stem;
      for (int n = 1; !names_.insert(stem).second; ++n) stem = base + "_" + std::to_string(n);
      program_.label_class.push_back(r);
      it->second = program_.form->add_label(e, stem);
    }
    return it->second;
  }

  IndexId fresh(int dim, const Indices& taken) {
    const uint32_t label = label_for(dim);
    for (uint32_t copy = 0;; ++copy) {
      const IndexId i = program_.form->index(label, copy);
      if (std::find(taken.begin(), taken.end(), i) == taken.end()) return i;
    }
  }

  // New indices for an axis, added to `taken`.
  Indices new_axis(int dim, Indices& taken) {
    Indices out;
    if (dim < 0) return out;
    for (int f : dims_.flatten(dim)) {
      out.push_back(fresh(f, taken));
      taken.push_back(out.back());
    }
    return out;
  }

  Axes default_axes(ValueId v) {
    Axes axes;
    Indices taken;
    for (int dim : axis_dims_[v.index]) axes.push_back(new_axis(dim, taken));
    return axes;
  }

  static Indices all(const Axes& axes) {
    Indices out;
    for (const Indices& a : axes) out.insert(out.end(), a.begin(), a.end());
    return out;
  }

  DType compute(ValueId v) const { return compute_type(g_.type(v).dtype); }

  TermId expand(ValueId v, const Axes& axes) {
    if (!inside_(v)) return program_.form->leaf(v.index, compute(v), axes);
    const auto key = std::pair(v, axes);
    if (auto it = memo_.find(key); it != memo_.end()) return it->second;
    const TermId t = expand_node(v, axes);
    memo_.emplace(key, t);
    return t;
  }

  // An operand's axes, where an axis of extent 1 meets a larger one.
  Axes operand_axes(ValueId v, const std::function<Indices(size_t)>& of) const {
    Axes out;
    for (size_t a = 0; a < rank(v); ++a) out.push_back(axis_dims_[v.index][a] < 0 ? Indices{} : of(a));
    return out;
  }

  TermId read_operand(ValueId v, const Axes& axes) {
    return cut_->contains(v) ? program_.form->leaf(v.index, compute(v), axes) : expand(v, axes);
  }

  TermId expand_node(ValueId v, const Axes& axes) {
    Form& form = *program_.form;
    const Node& n = g_.producer(v);
    const DType dtype = compute(v);
    switch (info(n.op).category) {
      case Category::leaf:
        if (n.op == Op::literal) {
          const double value = n.attributes.get<double>("value");
          if (dtype == DType::boolean) return form.literal(value != 0, dtype);
          // A 16-bit number is what its type makes of the digits, also where it is computed with in f32.
          if (is_real(dtype))
            return form.literal(g_.type(v).dtype == dtype ? value : round_to(g_.type(v).dtype, value), dtype);
          return form.literal(static_cast<double>(wrap_to(dtype, static_cast<int64_t>(value))), dtype);
        }
        if (n.op == Op::extent) {
          const sym::Expr of = n.attributes.get<std::vector<sym::Expr>>("of")[0];
          if (const auto c = syms_.as_constant(of))
            return form.literal(static_cast<double>(is_real(dtype) ? *c : wrap_to(dtype, *c)), dtype);
          const DType wide = wide_enough(of, dtype);
          const TermId count = form.extent_of(syms_.substitute(of, replaced_), wide);
          return wide == dtype ? count : form.cast(count, dtype, dtype);
        }
        if (n.op == Op::iota) {
          int64_t axis = n.attributes.get<int64_t>("axis");
          if (axis < 0) axis += static_cast<int64_t>(axes.size());
          const DType wide = wide_enough(g_.type(v).shape[static_cast<size_t>(axis)], dtype);
          const TermId positions = expand_iota(axes[static_cast<size_t>(axis)], wide);
          return wide == dtype ? positions : form.cast(positions, dtype, dtype);
        }
        CHECK(false, "the leaf {}", info(n.op).name);
      case Category::elementwise: {
        std::vector<TermId> args;
        for (ValueId o : n.operands)
          args.push_back(
              read_operand(o, operand_axes(o, [&](size_t a) { return axes[aligned(axes.size(), rank(o), a)]; })));
        return form.map(n.op, std::move(args));
      }
      case Category::cast: {
        const ValueId o = n.operands[0];
        const TermId arg = read_operand(o, operand_axes(o, [&](size_t a) { return axes[a]; }));
        const DType from = g_.type(o).dtype, to = g_.type(v).dtype;
        const bool reals = is_real(from) && is_real(to);
        if (reals && compute_type(from) == compute_type(to) && (promote(from, to) == to || free_casts_)) return arg;
        return form.cast(arg, to, dtype);
      }
      case Category::contract: {
        const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
        std::map<std::string, Indices> by;
        for (size_t a = 0; a < spec.result.size(); ++a) by[spec.result[a]] = axes[a];
        Indices taken = all(axes), bound;
        for (const std::string& name : spec.reduced()) {
          int dim = -1;
          for (size_t o = 0; o < 2; ++o)
            for (size_t a = 0; a < spec.operands[o].size(); ++a)
              if (spec.operands[o][a] == name && axis_dims_[n.operands[o].index][a] >= 0)
                dim = axis_dims_[n.operands[o].index][a];
          by[name] = new_axis(dim, taken);
          bound.insert(bound.end(), by[name].begin(), by[name].end());
        }
        TermId args[2];
        for (size_t o = 0; o < 2; ++o)
          args[o] = read_operand(n.operands[o],
                                 operand_axes(n.operands[o], [&](size_t a) { return by[spec.operands[o][a]]; }));
        return form.contract(sorted(bound), args[0], args[1]);
      }
      case Category::reduce: {
        const ValueId x = n.operands[0];
        const auto reduced = graph::reduced_axes(n, rank(x));
        const bool keep = n.attributes.get_or("keepdims", false);
        Indices taken = all(axes), bound;
        Axes inner;
        for (size_t a = 0, o = 0; a < rank(x); ++a) {
          if (std::binary_search(reduced.begin(), reduced.end(), static_cast<int64_t>(a))) {
            inner.push_back(new_axis(axis_dims_[x.index][a], taken));
            bound.insert(bound.end(), inner.back().begin(), inner.back().end());
            if (keep) ++o;
          } else {
            inner.push_back(axes[o++]);
          }
        }
        const TermId arg = read_operand(x, inner);
        bound = sorted(bound);
        if (n.op == Op::mean) {
          TermId count;
          for (IndexId i : bound) {
            const TermId e = form.extent_of(form.extent(i), dtype);
            count = count.valid() ? form.map(Op::mul, {count, e}) : e;
          }
          const TermId sum = form.reduce(Op::sum, bound, arg);
          return count.valid() ? form.map(Op::div, {sum, count}) : sum;
        }
        return form.reduce(n.op, bound, arg, static_cast<uint32_t>(g_.value(v).result));
      }
      case Category::view: {
        const ValueId x = n.operands[0];
        if (n.op != Op::reshape) {
          const auto map = view_map(n);
          Axes inner(rank(x));
          for (size_t o = 0; o < map.size(); ++o)
            if (map[o] >= 0 && axis_dims_[x.index][static_cast<size_t>(map[o])] >= 0)
              inner[static_cast<size_t>(map[o])] = axes[o];
          return read_operand(x, inner);
        }
        Axes inner(rank(x));
        const auto groups = reshape_groups(n);
        CHECK(groups, "a reshape became a barrier late");
        for (const Group& group : *groups) {
          Indices list;
          for (size_t o : group.out) list.insert(list.end(), axes[o].begin(), axes[o].end());
          size_t next = 0;
          for (size_t i : group.in)
            for (size_t k = dims_.flatten(axis_dims_[x.index][i]).size(); k > 0; --k)
              inner[i].push_back(list.at(next++));
          CHECK(next == list.size(), "a reshape's groups differ in indices");
        }
        return read_operand(x, inner);
      }
      default: CHECK(false, "{} in a region", info(n.op).name);
    }
  }

  // The type in which numbers up to an extent are what they are: i64 where they wrap in a narrow one.
  DType wide_enough(sym::Expr extent, DType dtype) const {
    if (is_real(dtype)) return dtype;
    const int64_t most = syms_.bounds(extent).hi;
    return dtype != DType::boolean && wrap_to(dtype, most) == most ? dtype : DType::i64;
  }

  TermId expand_iota(const Indices& axis, DType dtype) {
    Form& form = *program_.form;
    TermId sum = form.literal(0, dtype);
    bool first = true;
    for (IndexId i : axis) {
      if (first)
        sum = form.iota(i, dtype);
      else
        sum = form.map(Op::add, {form.map(Op::mul, {sum, form.extent_of(form.extent(i), dtype)}), form.iota(i, dtype)});
      first = false;
    }
    return sum;
  }

  const Graph& g_;
  ReadOptions options_;
  sym::Pool& syms_;
  Dims dims_;
  Program program_;
  std::vector<std::vector<int>> axis_dims_;
  std::vector<bool> counts_, may_wrap_;  // by value
  std::vector<bool> barrier_, made_;
  bool free_casts_ = false;
  std::function<bool(ValueId)> inside_;
  const std::set<ValueId>* cut_ = nullptr;
  std::map<std::pair<ValueId, Axes>, TermId> memo_;
  std::map<int, uint32_t> label_of_;
  std::unordered_map<sym::Expr, sym::Expr> replaced_;
  std::vector<std::pair<int, std::string>> spec_names_;  // what contractions call a dimension
  std::set<std::string> names_;
};

}  // namespace

Program read(const Graph& graph, const ReadOptions& options) { return Reader(graph, options).run(); }

std::vector<Splittable> splittable(const Program& program) {
  const Form& form = *program.form;
  std::set<uint32_t> bound;
  for (uint32_t k = 0; k < form.size(); ++k)
    for (IndexId i : form.at(TermId(k)).bound) bound.insert(form.at(i).label);
  std::vector<Splittable> out;
  for (uint32_t l : bound) {
    const Label& label = form.label(l);
    Splittable s{label.name, form.syms().print(label.extent), program.label_class[l], ""};
    const auto refuse = [&](const std::string& op) {
      s.why_not = fmt::format("a `{}`, which is not taken apart, has an axis of its extent", op);
    };
    if (const auto by = program.kept.find(s.axis_class); by != program.kept.end()) refuse(by->second);
    if (form.syms().as_constant(label.extent) == 0) s.why_not = "it has no elements";
    // A dimension is replaced everywhere, so also in shapes that only mention it.
    const bool dimension = form.syms().kind(label.extent) == sym::Kind::symbol;
    for (const Step& step : program.steps) {
      if (!step.barrier.valid() || !s.why_not.empty()) continue;
      const Node& n = program.graph->node(step.barrier);
      std::vector<ValueId> seen = n.operands;
      seen.insert(seen.end(), n.results.begin(), n.results.end());
      for (ValueId v : seen)
        for (sym::Expr e : program.graph->type(v).shape)
          if (dimension && form.syms().mentions(e, label.extent)) refuse(info(n.op).name);
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace cleave::algebra
