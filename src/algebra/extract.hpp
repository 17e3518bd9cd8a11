// Extraction: graphs as choices of one producer per class, the cheapest first under several symbolic-extent scenarios.
#pragma once

#include <functional>
#include <optional>

#include "algebra/values.hpp"

namespace cleave::algebra {

struct Choice {
  double cost = 0;
  std::vector<std::pair<ClassId, uint32_t>> picks;  // sorted: class and the number of its producer
};

struct ExtractOptions {
  size_t keep = 32;       // choices for all roots together, per scenario
  size_t keep_inner = 6;  // per class
  // The labels of a split index: reductions over both at once are to be avoided, so that each stops half way.
  std::optional<std::pair<uint32_t, uint32_t>> split;
};

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
  // The terms of a choice; `pick(class)` says which producer. No term for a root that would need itself.
  static std::vector<TermId> build(const Values& values, const std::vector<ClassId>& roots, Form& form,
                                   const std::function<uint32_t(ClassId)>& pick);
  static uint32_t pick_of(const Choice& choice, ClassId c);

 private:
  struct Scenario {
    std::vector<double> extents;  // by label
  };
  double elements(const Indices& indices, const Scenario& s) const;
  double cost(ClassId c, const Producer& p, const Scenario& s) const;
  const std::vector<Choice>& best(ClassId c, const Scenario& s);
  std::vector<Choice> best_together(const std::vector<ClassId>& roots, const Scenario& s, size_t keep);
  std::vector<Scenario> scenarios() const;
  // What a choice computes as reductions and contractions; choices that differ elsewhere only are spellings of one.
  std::vector<std::pair<ClassId, uint32_t>> shape_of(const Choice& choice) const;
  void keep_one_of_each_shape(std::vector<Choice>& sorted) const;
  static std::vector<Choice> combine(const std::vector<Choice>& a, const std::vector<Choice>& b);
  static bool merge(const Choice& a, const Choice& b, Choice& out);
  bool is_constant(PolyId p);

  const Values& values_;
  Normaliser& normal_;
  std::function<bool(uint32_t)> constant_;
  ExtractOptions options_;
  std::map<ClassId, std::vector<Choice>> known_;
  std::set<ClassId> open_;
  std::map<PolyId, bool> constants_;
  std::vector<bool> free_of_charge_;
  std::vector<std::vector<double>> costs_;  // by class and producer, in the scenario at hand
  double total(const Choice& c) const;
  std::optional<std::pair<ClassId, uint32_t>> forced_;
};

}  // namespace cleave::algebra
