// Normal forms: sums of monomials over atoms, the ring in which terms are compared and taken apart.
//
// A monomial is a rational coefficient and powers (rational exponents) of atoms. An atom is a leaf, a number, an
// extent, a function of polynomials, exp of one monomial (its coefficient is the power), a sum of several terms under a
// power that is no positive integer, a sum over bound indices of a monomial whose factors all hang together, another
// reduction, a predicate (idempotent) or a masked polynomial. Factors free of the bound indices stand outside of sums,
// nested sums are one sum, log of a product of exponentials is taken apart. Bound indices have names of their own (a
// copy number above any free index), chosen canonically, so that equal normal forms have equal ids.
#pragma once

#include <numeric>
#include <optional>

#include "algebra/form.hpp"

namespace cleave::algebra {

using AtomId = Id<struct AtomTag>;
using PolyId = Id<struct PolyTag>;

struct Rational {
  int64_t n = 0, d = 1;
  bool operator==(const Rational&) const = default;
  auto operator<=>(const Rational&) const = default;  // an order for sorting, not by value
  bool integer() const { return d == 1; }
  bool is(int64_t v) const { return d == 1 && n == v; }
};

struct Factor {
  AtomId atom;
  Rational power;
  auto operator<=>(const Factor&) const = default;
};

struct Monomial {
  Rational coefficient{1, 1};
  std::vector<Factor> factors;  // sorted by atom
  bool operator==(const Monomial&) const = default;
};

using Poly = std::vector<Monomial>;  // sorted by factors, which are distinct; no zero coefficients

enum class AtomKind : uint8_t {
  leaf,
  number,  // a literal that is no small fraction
  extent,
  iota,
  function,  // `op` of args; comparisons and logic are predicates
  exp,       // of one monomial with coefficient 1
  poly,      // arg0, of at least two terms
  sum,       // over `bound` of arg0, a monomial with coefficient 1
  reduce,    // `op` over `bound` of arg0 (amax, amin, prod, any, all)
  mask,      // where(arg0, arg1, -inf)
};

struct Atom {
  AtomKind kind = AtomKind::leaf;
  graph::Op op = graph::Op::literal;
  DType dtype = DType::f32, to = DType::f32;
  std::vector<PolyId> args;
  std::vector<DType> arg_types;
  Indices bound, free;
  int height = 0;  // of binders
  uint32_t source = 0;
  Axes axes;
  double value = 0;
  sym::Expr extent;
  bool positive = false;  // its value is known to be greater than 0
  bool predicate = false;
};

// Thrown when numbers or sums grow beyond what is worth the effort; the region is then left as it is.
struct TooLarge {};

class Normaliser {
 public:
  explicit Normaliser(Form& form) : form_(form) {}

  Form& form() { return form_; }
  const Atom& at(AtomId id) const { return atoms_[id]; }
  const Poly& at(PolyId id) const { return polys_[id]; }
  const Indices& free(PolyId id) const { return poly_free_[id.index]; }
  size_t poly_count() const { return polys_.size(); }

  PolyId of(TermId term);

  PolyId intern(Poly poly);
  PolyId number(Rational r);
  PolyId single(Monomial m) { return intern({std::move(m)}); }
  Indices free_of(const Monomial& m) const;
  bool is_zero(PolyId p) const { return polys_[p].empty(); }

  PolyId add(PolyId a, PolyId b, int64_t factor = 1);
  PolyId mul(PolyId a, PolyId b);
  PolyId pow(PolyId a, Rational q);
  PolyId inverse0(PolyId a);  // 1 / a, and 0 where a is 0 (quot0)
  bool never_zero(PolyId a);  // inverse0 is an ordinary reciprocal
  PolyId sign(PolyId a, DType dtype);
  PolyId sum(const Indices& bound, PolyId a);
  PolyId exp(PolyId a);
  PolyId log(PolyId a);
  PolyId rename(PolyId p, const std::map<IndexId, IndexId>& by);
  PolyId reduce(Atom like, const Indices& bound);            // the reduction of like.args[0] over `bound` by like.op
  PolyId mask(PolyId condition, PolyId value, DType dtype);  // where(condition, value, -inf)
  Monomial times(const Monomial& a, const Monomial& b) const;
  Monomial power(const Monomial& a, Rational q) const;  // factor by factor; meant for powers that were factors already
  Monomial common(const Poly& p) const;                 // the factors that all terms share, coefficient 1
  // The exponent of the exponentials that all terms share: p = exp(result) * rest.
  PolyId common_exponent(const Poly& p);
  bool positive(PolyId p) const;

  bool is_inverse0(const Factor& f) const {
    const Atom& a = atoms_[f.atom];
    return a.kind == AtomKind::function && a.op == graph::Op::quot0 && f.power.is(1);
  }

  std::string print(PolyId p) const;
  std::string print(AtomId a) const;
  std::string print(const Monomial& m) const;

  // Copy numbers from here on belong to bound indices.
  static constexpr uint32_t kBound = 1000;

 private:
  AtomId intern(Atom atom);
  PolyId atom(Atom a, Rational power = {1, 1});
  PolyId function(graph::Op op, DType dtype, DType to, std::vector<PolyId> args, std::vector<DType> types);
  PolyId map(const Term& t);
  PolyId sum_of(const Indices& bound, const Monomial& m);
  AtomId canonical(Atom a, const std::vector<IndexId>& bound);
  uint64_t role(const Poly& p, IndexId i) const;
  AtomId rename(AtomId a, const std::map<IndexId, IndexId>& by);
  PolyId renamed(const Monomial& m, const std::map<IndexId, IndexId>& by);

  Form& form_;
  Store<Atom, AtomTag> atoms_;
  Store<Poly, PolyTag> polys_;
  std::vector<Indices> poly_free_;
  std::map<std::vector<uint64_t>, AtomId> known_atoms_;
  std::map<std::vector<int64_t>, PolyId> known_polys_;
  std::unordered_map<TermId, PolyId> of_;
};

Rational add(Rational a, Rational b);
Rational mul(Rational a, Rational b);

}  // namespace cleave::algebra
