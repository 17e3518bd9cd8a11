// Evaluation in exact arithmetic on small random data: of normal forms, and of single operators on evaluated operands.
//
// A Print has one value per element of a small tensor over its free indices: residues modulo the primes of a tower (the
// top one always; each lower level where it is known), or an infinity. Identity is the residues modulo the top prime.
// Sums have random weights per label and coordinate, whose total is the label's extent, a random symbol. Functions
// without algebra are keyed hashes of the top residue. Maxima are keyed hashes of the set of distinct operands.
#pragma once

#include "algebra/field.hpp"
#include "algebra/normal.hpp"

namespace cleave::algebra {

struct Print {
  Indices free;                               // sorted; row-major layout in this order
  std::vector<std::vector<uint64_t>> levels;  // per level of the tower the residues; empty: not known
  std::vector<uint8_t> flags;                 // 0 finite, 1 -inf, 2 +inf; empty: all finite
  std::vector<std::vector<uint64_t>> sets;    // of maxima, or of minima: the sorted distinct operands' residues
  bool minimum = false;                       // which of the two
  bool bad = false;                           // outside of what is exact (inf - inf, division by 0)
};

// One draw: extents, weights, symbols, leaves.
class Draw {
 public:
  Draw(Normaliser& normal, const Tower& tower, uint64_t seed, std::vector<int64_t> label_extents);

  const Print& of(PolyId p);
  const Print& of(AtomId a);
  // One operator on operands given by their normal forms.
  Print map(graph::Op op, DType dtype, DType to, std::span<const PolyId> args, std::span<const DType> types);
  Print reduce(graph::Op op, const Indices& bound, PolyId arg, uint32_t result);
  Print contract(const Indices& bound, PolyId a, PolyId b);

  // Equal at every level that both have, the top one included.
  static bool same(const Print& a, const Print& b);
  // Every element has a square root, so that sqrt(x)^2 = x holds for this value in this draw.
  bool has_root(AtomId a);
  // A key for finding equal prints.
  uint64_t key(const Print& p) const;
  // A division by zero or an empty row came up: the draw says nothing.
  bool unlucky() const { return unlucky_; }
  size_t elements_evaluated() const { return work_; }

 private:
  size_t size_of(const Indices& free) const;
  int top() const { return tower_.height() - 1; }
  Print make(Indices free, bool all_levels);
  // Offsets of an operand's elements along the elements of `free`.
  std::vector<size_t> offsets(const Indices& free, const Indices& operand) const;
  Print constant(Rational r);
  Print literal(double v);
  Print hashed(uint64_t key, const std::vector<const Print*>& args);
  Print product(const Print& a, const Print& b, bool positive_a, bool positive_b);
  Print sum(const Print& a, const Print& b, bool minus);
  Print power(const Print& a, Rational q);
  Print inverse(const Print& a);  // 0 of 0
  Print exponential(const Print& a);
  Print extremum(const std::vector<const Print*>& args, const Indices& bound, bool minimum);
  Print select(const Print& c, const Print& a, const Print& b);
  Print total(const Print& a, const Indices& bound);
  Print compare(graph::Op op, const Print& a, const Print& b);
  Print logic(graph::Op op, std::span<const PolyId> args);
  Print symbol(sym::Expr e);
  uint64_t weight(int level, IndexId i, int64_t coordinate);
  uint64_t extent_residue(int level, sym::Expr e);

  Normaliser& normal_;
  const Tower& tower_;
  uint64_t seed_;
  std::vector<int64_t> extents_;  // by label
  std::unordered_map<PolyId, Print> polys_;
  std::unordered_map<AtomId, Print> atoms_;
  bool unlucky_ = false;
  size_t work_ = 0;
};

}  // namespace cleave::algebra
