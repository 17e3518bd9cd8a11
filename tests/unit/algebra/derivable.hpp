// Whether the producers of a value graph derive a term: operator by operator, as it is spelled.
#pragma once

#include <algorithm>

#include "algebra/values.hpp"

namespace cleave::algebra::test {

using graph::Op;

class Derivation {
 public:
  Derivation(Normaliser& normal, const Values& values) : normal_(normal), form_(normal.form()), values_(values) {}

  bool derivable(TermId id) {
    id = plain(id);
    if (auto it = known_.find(id); it != known_.end()) return it->second;
    known_[id] = false;
    const Term t = form_.at(id);
    const auto c = values_.known(normal_.of(id), t.dtype);
    if (!c) return false;
    std::vector<ClassId> args;
    for (TermId a : t.args) {
      const auto arg = values_.known(normal_.of(a), form_.at(a).dtype);
      if (!arg || !derivable(a)) return false;
      args.push_back(*arg);
    }
    if (t.kind == Kind::leaf) return known_[id] = true;
    std::vector<ClassId> sorted = args;
    std::sort(sorted.begin(), sorted.end());
    for (const Producer& p : values_.classes()[*c].producers) {
      std::vector<ClassId> mine;
      for (ClassId a : p.args) mine.push_back(values_.find(a));
      std::sort(mine.begin(), mine.end());
      if (mine != sorted) continue;
      if (p.kind == t.kind && (p.op == t.op || (t.op == Op::mul && p.op == Op::square)) && p.bound == t.bound)
        return known_[id] = true;
      // One spelling of each: x x is a square, 1 / x a reciprocal, a sum of a product a contraction.
    }
    return false;
  }

  // The same, with products and quotients in any spelling and sums in any grouping: what they are made of is derivable.
  bool derivable_but_for_spelling(TermId id, Op spelled) {
    id = plain(id);
    const Term t = form_.at(id);
    const bool product = t.kind == Kind::map && (t.op == Op::mul || t.op == Op::div);
    if (spelled == Op::mul ? product : t.op == Op::add)
      return derivable_but_for_spelling(t.args[0], spelled) && derivable_but_for_spelling(t.args[1], spelled);
    if (!values_.known(normal_.of(id), t.dtype)) return false;
    return std::all_of(t.args.begin(), t.args.end(), [&](TermId a) { return derivable_but_for_spelling(a, spelled); });
  }

  // The value graph takes a value apart once, under the first copies of its indices.
  TermId plain(TermId id) {
    Indices free = form_.free(id);
    std::ranges::sort(free, {}, [&](IndexId i) { return form_.at(i).copy; });
    std::map<uint32_t, uint32_t> used;
    std::map<IndexId, IndexId> by;
    for (IndexId i : free) by[i] = form_.index(form_.at(i).label, used[form_.at(i).label]++);
    const TermId first = form_.rename(id, by);
    return values_.known(normal_.of(first), form_.at(id).dtype) ? first : id;
  }

 protected:
  Normaliser& normal_;
  Form& form_;
  const Values& values_;

 private:
  std::map<TermId, bool> known_;
};

}  // namespace cleave::algebra::test
