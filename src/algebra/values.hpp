// The value graph: classes of equal values with their producers, closed under taking apart.
//
// Every value of the input graph is a class. A class is taken apart along its normal form: products into factors, sums
// into parts, a sum over indices into contractions of what stands inside (free factors moved in or left out, any subset
// of its indices opened, several sums opened together when they share a factor), exponentials gathered. Whatever the
// producers need becomes a class, until nothing new comes: the space is finite. Each producer is then applied to exact
// random data; one that does not reproduce its class is refused. So normal forms propose and fingerprints decide.
#pragma once

#include <numeric>
#include <optional>
#include <set>

#include "algebra/fingerprint.hpp"

namespace cleave::algebra {

using ClassId = uint32_t;

inline constexpr char kTwoSteps[] = "reduction in two steps";

struct Producer {
  Kind kind = Kind::map;
  graph::Op op = graph::Op::literal;
  DType to = DType::f32;  // cast
  std::vector<ClassId> args;
  Indices bound;
  uint32_t result = 0;  // moments
  TermId term;          // leaf, literal, extent, iota
  // A view: args[0] under other indices, these for those.
  std::map<IndexId, IndexId> renamed;
  const char* rule = "given";  // for people
  bool given = false;          // of the input graph
  bool operator==(const Producer& o) const {
    return kind == o.kind && op == o.op && to == o.to && args == o.args && bound == o.bound && result == o.result &&
           term == o.term && renamed == o.renamed;
  }
  bool is_view() const { return !renamed.empty(); }
};

struct ValueClass {
  PolyId poly;
  DType dtype;
  std::vector<Producer> producers;
  bool given = false;  // a value of the input graph
};

class Values {
 public:
  // `split`: the labels of a split index; given sums over both stop half way as they are, whatever they add up.
  Values(Normaliser& normal, size_t max_values, std::optional<std::pair<uint32_t, uint32_t>> split = {})
      : normal_(normal), form_(normal.form()), max_values_(max_values), split_(split) {}

  ClassId add(TermId term);  // a value of the input graph, with all that it is made of
  void saturate();
  // Applies every producer on `draws` draws; refuses those that do not reproduce their class, and joins equal classes.
  void test(uint64_t seed, int draws);

  const std::vector<ValueClass>& classes() const { return classes_; }
  std::optional<ClassId> known(PolyId poly, DType dtype) const {
    const auto it = by_poly_.find({poly, dtype});
    return it == by_poly_.end() ? std::nullopt : std::optional(find(it->second));
  }
  ClassId find(ClassId c) const { return joined_.empty() ? c : joined_[c]; }
  bool saturated() const { return saturated_; }
  size_t applications() const { return applications_; }
  size_t refused() const { return refused_; }
  // An operator of the input graph does not reproduce its own normal form: nothing here may be relied on.
  bool disputed() const { return disputed_; }
  std::string print(ClassId c) const { return normal_.print(classes_[c].poly); }
  std::string print(ClassId c, const Producer& p) const;

 private:
  ClassId class_of(PolyId poly, DType dtype);
  ClassId class_of(Monomial m, DType dtype) { return class_of(normal_.single(std::move(m)), dtype); }
  void propose(ClassId c, Producer p);
  void map(ClassId c, graph::Op op, std::vector<ClassId> args, const char* rule);
  void stop_half_way(ClassId c, const Term& t, const Producer& p);
  void take_apart(ClassId c);
  void product(ClassId c, const Monomial& m);
  void scale_invariance(ClassId c, const Monomial& m);
  void join_licensed();
  void atomic(ClassId c, const Factor& f);
  void open_sum(ClassId c, const Monomial& m, size_t which);
  void split_body(ClassId c, const Monomial& body, const Indices& bound);
  void terms(ClassId c, const Poly& p);
  std::vector<PolyId> opened(const Monomial& m, const Indices& bound);
  void open_together(ClassId c, const Poly& p);
  void sum_together(ClassId c, PolyId body, const Indices& bound);
  bool together(const Poly& p) const;
  bool factorable(const Poly& p, DType dtype) const;
  std::vector<Monomial> parts_of(const Monomial& m, bool squares_twice) const;
  // Some part carries all indices of the product: it is no outer product.
  bool narrow(const Monomial& m) const;
  Indices fresh(const Indices& bound, Indices taken, std::map<IndexId, IndexId>& by);
  PolyId one_atom(AtomId a) const;
  // The same value under the first copies of its indices, which all its views share; `by` leads there.
  PolyId plain(PolyId p, std::map<IndexId, IndexId>* by = nullptr);
  bool view(ClassId c, bool given);
  bool is_negative(const Monomial& m) const;
  bool is_inverse0(const Monomial& m) const {
    return m.coefficient.is(1) && m.factors.size() == 1 && normal_.is_inverse0(m.factors[0]);
  }
  int exp_depth(PolyId p);
  bool has_predicate(PolyId p);

  Normaliser& normal_;
  Form& form_;
  size_t max_values_;
  std::optional<std::pair<uint32_t, uint32_t>> split_;
  std::vector<ValueClass> classes_;
  std::map<std::pair<PolyId, DType>, ClassId> by_poly_;
  std::unordered_map<TermId, ClassId> by_term_;
  std::vector<ClassId> joined_;
  std::vector<std::pair<ClassId, ClassId>> licensed_;  // equal by a rule that residues cannot see (scale_invariance)
  std::set<uint32_t> reduced_labels_;
  std::map<PolyId, PolyId> plain_;
  std::map<PolyId, int> depth_;
  std::map<PolyId, bool> has_predicate_;
  size_t next_ = 0;
  bool saturated_ = false, disputed_ = false;
  size_t applications_ = 0, refused_ = 0, producers_ = 0;
};

}  // namespace cleave::algebra
