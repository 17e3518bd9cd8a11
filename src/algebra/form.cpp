#include "algebra/form.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/number.hpp"

namespace cleave::algebra {

Indices unite(const Indices& a, const Indices& b) {
  Indices out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}
Indices without(const Indices& a, const Indices& b) {
  Indices out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}
Indices common(const Indices& a, const Indices& b) {
  Indices out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}
bool has(const Indices& set, IndexId i) { return std::binary_search(set.begin(), set.end(), i); }
bool subset(const Indices& a, const Indices& b) { return std::includes(b.begin(), b.end(), a.begin(), a.end()); }
bool disjoint(const Indices& a, const Indices& b) { return common(a, b).empty(); }
Indices sorted(Indices list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

uint32_t Form::add_label(sym::Expr extent, std::string name) {
  labels_.push_back({extent, std::move(name)});
  return static_cast<uint32_t>(labels_.size() - 1);
}

IndexId Form::index(uint32_t label, uint32_t copy) {
  auto [it, fresh] = index_by_.emplace(std::pair(label, copy), IndexId{});
  if (fresh) it->second = indices_.add({label, copy});
  return it->second;
}

TermId Form::intern(Term t) {
  std::vector<uint64_t> key{static_cast<uint64_t>(t.kind),
                            static_cast<uint64_t>(t.op),
                            static_cast<uint64_t>(t.dtype),
                            static_cast<uint64_t>(t.to),
                            t.source,
                            t.extent.index,
                            t.args.size()};
  for (TermId a : t.args) key.push_back(a.index);
  for (IndexId i : t.bound) key.push_back(i.index);
  key.push_back(~uint64_t{0});
  for (const Indices& axis : t.axes) {
    for (IndexId i : axis) key.push_back(i.index);
    key.push_back(~uint64_t{0});
  }
  if (t.kind == Kind::iota) key.push_back(t.free[0].index);
  if (t.kind == Kind::literal) {
    uint64_t bits;
    std::memcpy(&bits, &t.value, sizeof bits);
    key.push_back(bits);
  }
  auto [it, fresh] = known_.emplace(std::move(key), TermId{});
  if (fresh) it->second = terms_.add(std::move(t));
  return it->second;
}

TermId Form::leaf(uint32_t source, DType dtype, Axes axes) {
  Term t;
  t.kind = Kind::leaf;
  t.dtype = dtype;
  t.source = source;
  for (const Indices& axis : axes) t.free.insert(t.free.end(), axis.begin(), axis.end());
  t.free = sorted(t.free);
  t.axes = std::move(axes);
  return intern(std::move(t));
}

TermId Form::literal(double value, DType dtype) {
  Term t;
  t.dtype = dtype;
  t.value = value;
  return intern(std::move(t));
}

TermId Form::extent_of(sym::Expr extent, DType dtype) {
  Term t;
  t.kind = Kind::extent;
  t.dtype = dtype;
  t.extent = extent;
  return intern(std::move(t));
}

TermId Form::iota(IndexId index, DType dtype) {
  Term t;
  t.kind = Kind::iota;
  t.dtype = dtype;
  t.free = {index};
  return intern(std::move(t));
}

TermId Form::map(graph::Op op, std::vector<TermId> args) {
  Term t;
  t.kind = Kind::map;
  t.op = op;
  for (TermId a : args) t.free = unite(t.free, terms_[a].free);
  t.dtype =
      op == graph::Op::unscale ? terms_[args[0]].dtype : result_dtype(graph::scalar_fn(op), terms_[args.back()].dtype);
  t.args = std::move(args);
  return intern(std::move(t));
}

TermId Form::cast(TermId arg, DType to, DType dtype) {
  Term t;
  t.kind = Kind::map;
  t.op = graph::Op::cast;
  t.dtype = dtype;
  t.to = to;
  t.free = terms_[arg].free;
  t.args = {arg};
  return intern(std::move(t));
}

TermId Form::reduce(graph::Op op, Indices bound, TermId arg, uint32_t result) {
  if (bound.empty() && op != graph::Op::moments) return arg;
  Term t;
  t.kind = Kind::reduce;
  t.op = op;
  t.dtype = terms_[arg].dtype;
  t.free = without(terms_[arg].free, bound);
  t.bound = std::move(bound);
  t.source = result;
  t.args = {arg};
  return intern(std::move(t));
}

TermId Form::contract(Indices bound, TermId a, TermId b) {
  Term t;
  t.kind = Kind::contract;
  t.op = graph::Op::contract;
  t.dtype = terms_[a].dtype;
  t.free = without(unite(terms_[a].free, terms_[b].free), bound);
  t.bound = std::move(bound);
  t.args = {a, b};
  return intern(std::move(t));
}

TermId Form::scaled_sum(Indices bound, TermId scores, TermId factor) {
  Term t;
  t.kind = Kind::scaled_sum;
  t.op = graph::Op::scaled_reduce;
  t.dtype = terms_[scores].dtype;
  t.free = terms_[scores].free;
  t.args = {scores};
  if (factor.valid()) {
    t.free = unite(t.free, terms_[factor].free);
    t.args.push_back(factor);
  }
  t.free = without(t.free, bound);
  t.bound = std::move(bound);
  return intern(std::move(t));
}

TermId Form::with_args(TermId id, std::vector<TermId> args) {
  const Term t = terms_[id];
  if (t.args == args) return id;
  switch (t.kind) {
    case Kind::leaf:
    case Kind::literal:
    case Kind::extent:
    case Kind::iota: return id;
    case Kind::map: return t.op == graph::Op::cast ? cast(args[0], t.to, t.dtype) : map(t.op, std::move(args));
    case Kind::reduce: return reduce(t.op, t.bound, args[0], t.source);
    case Kind::contract: return contract(t.bound, args[0], args[1]);
    case Kind::scaled_sum: return scaled_sum(t.bound, args[0], args.size() > 1 ? args[1] : TermId{});
  }
  CHECK(false, "kind {}", static_cast<int>(t.kind));
}

TermId Form::rename(TermId id, const std::map<IndexId, IndexId>& by) {
  const Term t = terms_[id];
  std::map<IndexId, IndexId> relevant;
  for (const auto& [from, to] : by)
    if (from != to && has(t.free, from)) relevant.emplace(from, to);
  if (relevant.empty()) return id;
  auto renamed = [&](IndexId i) {
    auto it = relevant.find(i);
    return it == relevant.end() ? i : it->second;
  };
  if (t.kind == Kind::leaf) {
    Axes axes = t.axes;
    for (Indices& axis : axes)
      for (IndexId& i : axis) i = renamed(i);
    return leaf(t.source, t.dtype, std::move(axes));
  }
  if (t.kind == Kind::iota) return iota(renamed(t.free[0]), t.dtype);
  // A bound index that a new name would meet moves to the first free copy of its label.
  Indices taken = t.free;
  for (const auto& [from, to] : relevant) taken = unite(taken, {to});
  std::map<IndexId, IndexId> inner = relevant;
  Indices bound;
  for (IndexId i : t.bound) {
    IndexId j = i;
    for (uint32_t copy = 0; has(taken, j) || (j != i && has(t.bound, j)); ++copy) j = index(indices_[i].label, copy);
    taken = unite(taken, {j});
    inner[i] = j;
    bound.push_back(j);
  }
  std::vector<TermId> args;
  for (TermId a : t.args) args.push_back(rename(a, inner));
  bound = sorted(bound);
  switch (t.kind) {
    case Kind::reduce: return reduce(t.op, bound, args[0], t.source);
    case Kind::contract: return contract(bound, args[0], args[1]);
    case Kind::scaled_sum: return scaled_sum(bound, args[0], args.size() > 1 ? args[1] : TermId{});
    default: return with_args(id, args);
  }
}

bool Form::is_literal(TermId id, double value) const {
  return terms_[id].kind == Kind::literal && terms_[id].value == value;
}

std::string Form::print(IndexId id) const {
  const Index& i = indices_[id];
  const std::string& name = labels_[i.label].name;
  if (i.copy == 0) return name;
  // The copies that normal forms bind (normal.hpp) carry a prime.
  if (i.copy < 1000) return fmt::format("{}{}", name, i.copy);
  return i.copy % 16 == 1000 % 16 ? name + "'" : fmt::format("{}'{}", name, (i.copy - 1000) % 16);
}

std::string Form::print(TermId id) const {
  const Term& t = terms_[id];
  auto list = [&](const Indices& is) {
    std::string out;
    for (IndexId i : is) out += (out.empty() ? "" : " ") + print(i);
    return out;
  };
  std::string args;
  for (TermId a : t.args) args += (args.empty() ? "" : ", ") + print(a);
  switch (t.kind) {
    case Kind::leaf: {
      std::string axes;
      for (const Indices& axis : t.axes) axes += (axes.empty() ? "" : ",") + (axis.empty() ? "1" : list(axis));
      return axes.empty() ? source_name(t.source) : fmt::format("{}[{}]", source_name(t.source), axes);
    }
    case Kind::literal: return fmt::format("{}", shown(t.value));
    case Kind::extent: return fmt::format("|{}|", syms_->print(t.extent));
    case Kind::iota: return list(t.free);
    case Kind::map:
      return t.op == graph::Op::cast ? fmt::format("{}({})", name(t.to), args)
                                     : fmt::format("{}({})", info(t.op).name, args);
    case Kind::reduce: return fmt::format("{}_{{{}}}({})", info(t.op).name, list(t.bound), args);
    case Kind::contract: return fmt::format("sum_{{{}}}({} * {})", list(t.bound), print(t.args[0]), print(t.args[1]));
    case Kind::scaled_sum: return fmt::format("scaled_{{{}}}({})", list(t.bound), args);
  }
  CHECK(false, "kind {}", static_cast<int>(t.kind));
}

}  // namespace cleave::algebra
