// The index form: a program over scalars indexed by iteration variables.
//
// An Index is an iteration variable, a Label its type (an extent class). A Term is a function of a set of distinct
// indices; transposes, broadcasts, squeezes and factoring reshapes leave no trace but the names of indices. Terms are
// hash-consed in a Form, so equal terms have equal ids, and arguments precede their users. A binder (reduce, contract,
// scaled_sum) closes over its bound indices: the same index may be free outside of it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace cleave::algebra {

using IndexId = Id<struct IndexTag>;
using TermId = Id<struct TermTag>;
using Indices = std::vector<IndexId>;  // sorted, distinct (a set), unless said otherwise
using Axes = std::vector<Indices>;     // per axis of a tensor its indices, row-major; an axis of extent 1 has none

struct Index {
  uint32_t label;
  uint32_t copy;  // tells indices of one label apart
};

struct Label {
  sym::Expr extent;
  std::string name;
};

enum class Kind : uint8_t {
  leaf,        // a graph value read along `axes`
  literal,     // `value`
  extent,      // the number `extent`, a symbol to the algebra even where it is constant
  iota,        // the value of its one free index
  map,         // `op` (elementwise, cast or unscale) over args
  reduce,      // `op` over `bound` (sum, prod, amax, amin, any, all, moments with `result`)
  contract,    // sum over `bound` of arg0 * arg1
  scaled_sum,  // sum over `bound` of exp(arg0 - max over `bound` of arg0) * arg1 (no arg1: 1); exp(-inf - x) is 0
};

struct Term {
  Kind kind = Kind::literal;
  graph::Op op = graph::Op::literal;
  DType dtype = DType::f32;  // reals are in their compute type
  std::vector<TermId> args;
  Indices bound;
  Indices free;
  uint32_t source = 0;    // leaf: the graph value; moments: which result
  Axes axes;              // leaf
  double value = 0;       // literal
  sym::Expr extent;       // extent
  DType to = DType::f32;  // cast: the rounding that it applies
};

class Form {
 public:
  explicit Form(std::shared_ptr<sym::Pool> syms) : syms_(std::move(syms)) {}

  uint32_t add_label(sym::Expr extent, std::string name);
  IndexId index(uint32_t label, uint32_t copy);
  const Index& at(IndexId id) const { return indices_[id]; }
  const Label& label(uint32_t label) const { return labels_[label]; }
  const Label& label_of(IndexId id) const { return labels_[indices_[id].label]; }
  sym::Expr extent(IndexId id) const { return label_of(id).extent; }
  size_t label_count() const { return labels_.size(); }
  size_t index_count() const { return indices_.size(); }

  const Term& at(TermId id) const { return terms_[id]; }
  const Indices& free(TermId id) const { return terms_[id].free; }
  size_t size() const { return terms_.size(); }
  sym::Pool& syms() const { return *syms_; }
  const std::shared_ptr<sym::Pool>& shared_syms() const { return syms_; }

  TermId leaf(uint32_t source, DType dtype, Axes axes);
  TermId literal(double value, DType dtype);
  TermId extent_of(sym::Expr extent, DType dtype);
  TermId iota(IndexId index, DType dtype);
  TermId map(graph::Op op, std::vector<TermId> args);
  TermId cast(TermId arg, DType to, DType dtype);
  TermId reduce(graph::Op op, Indices bound, TermId arg, uint32_t result = 0);
  TermId contract(Indices bound, TermId a, TermId b);
  TermId scaled_sum(Indices bound, TermId scores, TermId factor = {});

  // The same term with other arguments.
  TermId with_args(TermId id, std::vector<TermId> args);
  // The term with free indices replaced (bound ones move out of the way).
  TermId rename(TermId id, const std::map<IndexId, IndexId>& by);

  void name_source(uint32_t source, std::string name) { source_names_[source] = std::move(name); }
  std::string source_name(uint32_t source) const {
    auto it = source_names_.find(source);
    return it == source_names_.end() ? "v" + std::to_string(source) : it->second;
  }

  bool is_literal(TermId id, double value) const;
  std::string print(TermId id) const;
  std::string print(IndexId id) const;

 private:
  TermId intern(Term term);

  std::shared_ptr<sym::Pool> syms_;
  std::map<uint32_t, std::string> source_names_;  // for people
  std::vector<Label> labels_;
  Store<Index, IndexTag> indices_;
  std::map<std::pair<uint32_t, uint32_t>, IndexId> index_by_;
  Store<Term, TermTag> terms_;
  std::map<std::vector<uint64_t>, TermId> known_;
};

// Set operations on sorted index lists.
Indices unite(const Indices& a, const Indices& b);
Indices without(const Indices& a, const Indices& b);
Indices common(const Indices& a, const Indices& b);
bool has(const Indices& set, IndexId i);
bool subset(const Indices& a, const Indices& b);
bool disjoint(const Indices& a, const Indices& b);
Indices sorted(Indices list);

}  // namespace cleave::algebra
