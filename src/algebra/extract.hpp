// Extraction: graphs as choices of one producer per class, the cheapest first under several symbolic-extent scenarios.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "algebra/values.hpp"

namespace cleave::algebra {

using Pick = std::pair<ClassId, uint32_t>;  // a class and the number of its producer

struct Choice {
  double cost = 0;
  std::vector<Pick> picks;  // sorted
};

struct ExtractOptions {
  size_t keep = 32;       // choices for all roots together, per scenario
  size_t keep_inner = 6;  // per class
  // The labels of a split index: reductions over both at once are to be avoided, so that each stops half way.
  std::optional<std::pair<uint32_t, uint32_t>> split;
};

constexpr ClassId kNoClass = ~ClassId{0};
constexpr double kWholeReduction = 1e30;  // what such a reduction costs

class Extractor {
 public:
  // `constant(source)`: the leaf is the same in every call; what depends on such leaves only costs nothing at run time.
  Extractor(const Values& values, Normaliser& normal, std::function<bool(uint32_t)> constant, ExtractOptions options);

  // The best choices for the roots, distinct, in order of cost, the scenarios interleaved.
  std::vector<Choice> run(const std::vector<ClassId>& roots);
  // Choices that have a given kind of producer which none of `known` has, the cheapest for each.
  std::vector<Choice> diverse(const std::vector<ClassId>& roots, const std::vector<Choice>& known, size_t most,
                              const std::function<bool()>& stop);
  // With a split index: the input graph, with every reduction that went over both parts in two steps. None where some
  // reduction cannot stop half way.
  std::optional<Choice> given_in_parts(const std::vector<ClassId>& roots);
  // The terms of a choice; `pick(class)` says which producer. No term for a root that would need itself.
  static std::vector<TermId> build(const Values& values, const std::vector<ClassId>& roots, Form& form,
                                   const std::function<uint32_t(ClassId)>& pick);
  static uint32_t pick_of(const Choice& choice, ClassId c);

 private:
  struct Scenario {
    std::vector<double> extents;  // by label
  };
  // Choices under construction: their picks lie one behind the other.
  struct Draft {
    double cost = 0;
    uint64_t shape = 0;
    size_t begin = 0, size = 0;
  };
  struct Drafts {
    std::vector<Pick> picks;
    std::vector<Draft> list;
    std::span<const Pick> of(const Draft& d) const { return {picks.data() + d.begin, d.size}; }
  };
  double elements(const Indices& indices, const Scenario& s) const;
  double cost(ClassId c, const Producer& p, const Scenario& s) const;
  void begin(const Scenario& s);
  const std::vector<Choice>& best(ClassId c);
  void extend(Drafts& drafts, size_t first, const std::vector<Choice>& by, ClassId without) const;
  void sort_and_keep_one_of_each_shape(Drafts& drafts) const;
  std::vector<Draft> best_of_each_producer(const Drafts& drafts, ClassId c) const;
  std::vector<Choice> best_together(const std::vector<ClassId>& roots, size_t keep);
  std::vector<Scenario> scenarios() const;
  std::vector<ClassId> with_users(ClassId c) const;  // the class and all whose choices hang on it
  // What a choice computes as reductions and contractions; choices that differ elsewhere only are spellings of one.
  uint64_t shape_of(std::span<const Pick> picks) const;
  bool is_constant(PolyId p);

  const Values& values_;
  Normaliser& normal_;
  std::function<bool(uint32_t)> constant_;
  ExtractOptions options_;
  std::vector<std::optional<std::vector<Choice>>> known_;
  std::vector<bool> open_;
  std::map<PolyId, bool> constants_;
  std::vector<bool> free_of_charge_;
  std::vector<std::vector<double>> costs_;     // by class and producer, in the scenario at hand
  std::vector<std::vector<uint64_t>> shapes_;  // likewise: a random number for a reduction or contraction, else 0
  std::vector<std::vector<ClassId>> users_;    // by class: those with a producer that reads it
  std::optional<Pick> forced_;
};

}  // namespace cleave::algebra
