// A cross-check of what the search leaves out. All graphs of a small family are enumerated; those that compute one
// value, by float64 at two draws, should each be derivable from the smallest of them, or fall under an exclusion with a
// name.
//
// CLEAVE_OPERATORS sets the most operators of a graph, CLEAVE_INPUTS = 3 takes three inputs and indices in place of
// two, CLEAVE_MISSED how many of the graphs that were missed are printed.
#include <cstdlib>

#include "algebra/screen.hpp"
#include "derivable.hpp"
#include "support.hpp"

namespace cleave::algebra {
namespace {

using graph::Op;

struct Member {
  TermId term;
  size_t operators;
};

class Family {
 public:
  // Two inputs over two indices, or three over three.
  explicit Family(size_t inputs) {
    for (const char* name : {"i", "k", "j"})
      if (index_.size() < inputs) index_.push_back(form_.index(form_.add_label(syms_->symbol(name), name), 0));
    levels_.resize(1);
    const IndexId i = index_[0], k = index_[1], j = index_.back();
    for (const Axes& axes : {Axes{{i}, {k}}, Axes{{k}}, Axes{{k}, {j}}})
      if (levels_[0].size() < inputs) levels_[0].push_back(form_.leaf(next_source_++, DType::f32, axes));
  }

  void enumerate(size_t operators) {
    std::set<TermId> seen(levels_[0].begin(), levels_[0].end());
    for (size_t n = 1; n <= operators; ++n) {
      std::vector<TermId> made;
      auto keep = [&](TermId t) {
        if (seen.insert(t).second) made.push_back(t);
      };
      for (TermId x : levels_[n - 1]) {
        keep(form_.map(Op::exp, {x}));
        for (IndexId i : form_.free(x)) keep(form_.reduce(Op::sum, {i}, x));
      }
      for (size_t a = 0; a + 1 <= n; ++a)
        for (TermId x : levels_[a])
          for (TermId y : levels_[n - 1 - a]) {
            keep(form_.map(Op::div, {x, y}));
            if (y < x) continue;
            for (Op op : {Op::add, Op::mul, Op::max}) keep(form_.map(op, {x, y}));
            for (IndexId i : common(form_.free(x), form_.free(y))) keep(form_.contract({i}, x, y));
          }
      levels_.push_back(std::move(made));
    }
  }

  // The members by value: float64 results at two draws, rounded for the key and then compared.
  std::vector<std::vector<Member>> groups() {
    std::map<uint64_t, std::vector<Member>> by_key;
    Lattice lattices[] = {{form_, {5, 7, 3}}, {form_, {6, 6, 4}}};
    std::vector<FloatDraw> draws;
    const auto begin = [&] {  // forgets what was computed, of which a large family has more than fits
      draws.clear();
      for (uint64_t seed : {1, 2})
        draws.emplace_back(
            form_, lattices[seed - 1],
            [seed](uint32_t source, std::span<const int64_t> at) {
              uint64_t h = mix(seed, source);
              for (int64_t x : at) h = mix(h, static_cast<uint64_t>(x));
              return 0.8 * Rng(h).normal();
            },
            false);
    };
    size_t count = 0;
    for (size_t n = 0; n < levels_.size(); ++n)
      for (TermId t : levels_[n]) {
        if (count++ % 200'000 == 0) begin();
        uint64_t key = 0x6b6579;
        bool finite = true;
        for (FloatDraw& d : draws)
          for (double v : d.of(t).values) {
            finite = finite && std::isfinite(v) && std::abs(v) < 1e12;
            for (const char c : fmt::format("{:.7e}", v)) key = mix(key, static_cast<uint64_t>(c));
          }
        for (IndexId i : form_.free(t)) key = mix(key, i.index);
        if (finite) by_key[key].push_back({t, n});
      }
    std::vector<std::vector<Member>> out;
    for (auto& [key, list] : by_key)
      if (list.size() > 1) out.push_back(std::move(list));
    return out;
  }

  Form& form() { return form_; }
  size_t size() const {
    size_t n = 0;
    for (const auto& level : levels_) n += level.size();
    return n;
  }

 private:
  std::shared_ptr<sym::Pool> syms_ = std::make_shared<sym::Pool>();
  Form form_{syms_};
  std::vector<IndexId> index_;
  std::vector<std::vector<TermId>> levels_;
  uint32_t next_source_ = 0;
};

// Why an operator is not looked for; empty: it should have been found.
class Exclusion {
 public:
  explicit Exclusion(Normaliser& normal) : normal_(normal), form_(normal.form()) {}

  std::string of(TermId id) const {
    const Term t = form_.at(id);
    const PolyId whole = normal_.of(id), a = normal_.of(t.args.at(0)), second = normal_.of(t.args.back());
    const bool two = t.args.size() == 2, quotient = t.op == Op::div;
    if (t.op == Op::max) return a == second ? "max(x, x) is x" : "a maximum that does not cancel is never moved";
    if (normal_.at(whole).size() == 1 && any(whole, [&](const Monomial& m) { return number(m); }))
      return "a value that is a number (sum of x / sum of x)";
    for (IndexId i : t.bound)
      if (any(a, [&](const Monomial& m) {
            return !has(normal_.free_of(m), i) &&
                   (!two || any(second, [&](const Monomial& n) { return !has(normal_.free_of(n), i); }));
          }))
        return "a term is summed over an index that it lacks";
    if (any(whole, [&](const Monomial& m) {
          return std::any_of(m.factors.begin(), m.factors.end(),
                             [&](const Factor& f) { return normal_.at(f.atom).bound.size() > 4; });
        }))
      return "a sum over more than four indices is not opened";
    if (t.op == Op::add && any(a, [&](const Monomial& m) {
          return any(second, [&](const Monomial& n) { return m.factors == n.factors; });
        }))
      return "x + x is 2 x";
    if (t.op == Op::add) return "";
    if (quotient && any(second, [&](const Monomial& m) { return divides(m, true); }))
      return "a denominator that has a denominator";
    const PolyId b = !two ? normal_.number({1, 1}) : quotient ? normal_.pow(second, {-1, 1}) : second;
    if (cancels(t, a, b) || cancels_inside(whole)) return "factors that cancel (x y / y)";
    if (quotient && any(a, [&](const Monomial& m) { return divides(m); }))
      return "denominators are gathered: (x / y) / z is x / (y z)";
    auto counted = [&](PolyId p) { return any(p, [](const Monomial& m) { return !m.coefficient.is(1); }); };
    auto several = [&](PolyId p) { return counted(p) || normal_.at(p).size() > 1; };
    if (two && ((counted(a) && several(b)) || (several(a) && counted(b))))
      return "a number stands in one place: (2 x) (2 y) is 4 (x y)";
    if (two && shared(a, b, t.kind == Kind::contract)) return "x x is a square";
    for (PolyId p : {whole, a, b})
      if (any(p, [&](const Monomial& m) { return outer(m); }))
        return "a product with more indices than its factors is not formed";
    if (normal_.at(whole).size() == 1 && counted(whole)) return "a number stands in one place: (2 x) (2 y) is 4 (x y)";
    return "";
  }

 private:
  template <class Test>
  bool any(PolyId p, const Test& test) const {
    return std::any_of(normal_.at(p).begin(), normal_.at(p).end(), test);
  }
  bool number(const Monomial& m) const {
    return std::all_of(m.factors.begin(), m.factors.end(),
                       [&](const Factor& f) { return normal_.at(f.atom).kind == AtomKind::extent; });
  }
  bool divides(const Monomial& m, bool exponentials = false) const {
    return std::any_of(m.factors.begin(), m.factors.end(), [&](const Factor& f) {
      return f.power.n < 0 && (exponentials || normal_.at(f.atom).kind != AtomKind::exp);
    });
  }
  bool outer(const Monomial& m) const {
    const Indices all = normal_.free_of(m);
    return std::none_of(m.factors.begin(), m.factors.end(),
                        [&](const Factor& f) { return normal_.at(f.atom).free == all; });
  }
  // How many factors there are, inside of sums too.
  int64_t degree(const Monomial& m) const {
    int64_t sum = 0;
    for (const Factor& f : m.factors) {
      const Atom& a = normal_.at(f.atom);
      sum += std::abs(f.power.n) * (a.kind == AtomKind::sum ? degree(normal_.at(a.args[0])[0]) : 1);
    }
    return sum;
  }
  // A product of terms has lost factors, by itself or when it is summed; or a sum meets its own reciprocal.
  bool cancels(const Term& t, PolyId a, PolyId b) const {
    for (const Monomial& m : normal_.at(a))
      for (const Monomial& n : normal_.at(b)) {
        const PolyId product = normal_.single(normal_.times(m, n)), sum = normal_.sum(t.bound, product);
        if (degree(normal_.at(product)[0]) < degree(m) + degree(n)) return true;
        if (any(sum, [&](const Monomial& s) { return degree(s) < degree(m) + degree(n); })) return true;
      }
    return reciprocal(a, b) || reciprocal(b, a);
  }
  // A sum of some factors over some index is what other factors there divide by.
  bool cancels_inside(PolyId p) const {
    return any(p, [&](const Monomial& m) {
      return std::any_of(m.factors.begin(), m.factors.end(), [&](const Factor& f) {
        const Atom sum = normal_.at(f.atom);
        if (sum.kind != AtomKind::sum) return false;
        const Monomial body = normal_.at(sum.args[0])[0];
        for (IndexId i : sum.bound) {
          Monomial with, without;
          for (const Factor& g : body.factors) (has(normal_.at(g.atom).free, i) ? with : without).factors.push_back(g);
          const PolyId inner = normal_.sum({i}, normal_.single(with));
          if (any(inner, [&](const Monomial& n) { return degree(normal_.times(n, without)) < degree(body); }))
            return true;
        }
        return false;
      });
    });
  }
  // Some term of `b` has a sum below it that is `a` but for a factor.
  bool reciprocal(PolyId a, PolyId b) const {
    auto bare = [&](PolyId p) {
      PolyId q = normal_.mul(p, normal_.single(normal_.power(normal_.common(normal_.at(p)), {-1, 1})));
      const Rational lead = normal_.at(q)[0].coefficient;
      return normal_.mul(q, normal_.number({lead.d, lead.n}));
    };
    if (normal_.at(a).size() < 2) return false;
    return any(b, [&](const Monomial& m) {
      return std::any_of(m.factors.begin(), m.factors.end(), [&](const Factor& f) {
        const Atom& x = normal_.at(f.atom);
        return x.kind == AtomKind::poly && f.power.n < 0 && bare(x.args[0]) == bare(a);
      });
    });
  }
  // A factor of both; contractions know squares and cubes, but not those of a reciprocal.
  bool shared(PolyId a, PolyId b, bool only_below) const {
    return any(a, [&](const Monomial& m) {
      return any(b, [&](const Monomial& n) {
        for (const Factor& f : m.factors)
          for (const Factor& g : n.factors)
            if (f.atom == g.atom && (!only_below || f.power.n < 0 || f.power.n + g.power.n > 3)) return true;
        return false;
      });
    });
  }

  Normaliser& normal_;
  Form& form_;
};

class Explained : public test::Derivation {
 public:
  using Derivation::Derivation;

  // Why `id` is not derived: the name of an exclusion that an operator falls under which is not derivable itself. Where
  // even the normal forms differ it may be any of the operators, of the given graph too.
  std::string excluded(TermId id, TermId given, const Exclusion& exclusion) {
    const bool known = normal_.of(id) == normal_.of(given);
    std::set<TermId> seen;
    std::string why = excluded(id, exclusion, !known, seen);
    if (why.empty() && !known) why = excluded(given, exclusion, true, seen);
    return why;
  }
  std::string excluded(TermId id, const Exclusion& exclusion, bool all, std::set<TermId>& seen) {
    if (form_.at(id).args.empty() || !seen.insert(id).second || (!all && derivable(id))) return "";
    for (TermId a : form_.at(id).args)
      if (std::string why = excluded(a, exclusion, all, seen); !why.empty()) return why;
    return exclusion.of(id);
  }
};

TEST(Completeness, EveryEqualGraphIsDerivedOrExcludedByName) {
  auto number = [](const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text ? static_cast<size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
  };
  const size_t operators = number("CLEAVE_OPERATORS", 3), inputs = number("CLEAVE_INPUTS", 2);
  Family family(inputs);
  family.enumerate(operators);
  const auto groups = family.groups();
  std::map<std::string, size_t> excluded;
  std::vector<std::string> missed;
  size_t derived = 0, members = 0;
  std::optional<Normaliser> normal;
  size_t count = 0;
  for (const auto& group : groups) {
    if (count++ % 2000 == 0) normal.emplace(family.form());
    const Exclusion exclusion(*normal);
    members += group.size() - 1;
    try {
      Values values(*normal, 2000);
      values.add(group[0].term);
      values.saturate();
      values.test(1, 2);
      Explained d(*normal, values);
      for (size_t k = 1; k < group.size(); ++k) {
        const TermId t = group[k].term;
        if (d.derivable(t)) {
          ++derived;
          continue;
        }
        std::string why = d.excluded(t, group[0].term, exclusion);
        if (why.empty() && d.derivable_but_for_spelling(t, Op::mul))
          why = "one spelling of a product or quotient of the same values";
        if (why.empty() && d.derivable_but_for_spelling(t, Op::add))
          why = "one grouping of a sum whose terms share no factor";
        if (why.empty())
          missed.push_back(family.form().print(group[0].term) + "  =  " + family.form().print(t));
        else
          ++excluded[why];
      }
    } catch (const TooLarge&) {
      excluded["too large for normal forms"] += group.size() - 1;
    }
  }
  fmt::print("{} graphs, {} values with more than one, {} further graphs: {} derived, {} missed\n", family.size(),
             groups.size(), members, derived, missed.size());
  for (const auto& [why, n] : excluded) fmt::print("{:8} excluded: {}\n", n, why);
  for (size_t k = 0; k < std::min<size_t>(missed.size(), number("CLEAVE_MISSED", 30)); ++k)
    fmt::print("  missed: {}\n", missed[k]);
  EXPECT_GT(derived, 50u);
  EXPECT_EQ(missed.size(), 0u);
}

}  // namespace
}  // namespace cleave::algebra
