// Screening: what exact arithmetic cannot see. Terms are computed in f32 and in float64 on small extents, with ordinary
// and adversarial data; a candidate that is much less accurate than the input graph's stable form, or that loses a NaN
// which the input graph lets through, is refused with the reason.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "algebra/form.hpp"

namespace cleave::algebra {

struct FloatArray {
  Indices free;  // row-major in this order
  std::vector<double> values;
};

// Extents of labels, and where an operand's elements lie along those of a result, the same in all draws.
class Lattice {
 public:
  Lattice(const Form& form, std::vector<int64_t> label_extents) : form_(form), extents_(std::move(label_extents)) {}
  int64_t of_label(uint32_t label) const { return extents_[label]; }
  int64_t extent(IndexId i) const { return extents_[form_.at(i).label]; }
  int64_t largest() const;
  size_t size_of(const Indices& free) const;
  const std::vector<uint32_t>& offsets(const Indices& free, const Indices& operand);

 private:
  const Form& form_;
  std::vector<int64_t> extents_;
  std::map<std::pair<Indices, Indices>, std::vector<uint32_t>> known_;
};

// Computes terms on concrete numbers; every operation is rounded to f32, or none is.
class FloatDraw {
 public:
  using Leaf = std::function<double(uint32_t source, std::span<const int64_t> coordinates)>;
  // `same`: a draw with the same leaves, which are read there.
  FloatDraw(Form& form, Lattice& lattice, Leaf leaf, bool f32, FloatDraw* same = nullptr)
      : form_(form), lattice_(lattice), leaf_(std::move(leaf)), f32_(f32), same_(same) {}
  const FloatArray& of(TermId id);
  void stand_alone() { same_ = nullptr; }

 private:
  double rounded(double v) const { return f32_ ? round_to(DType::f32, v) : v; }
  size_t size_of(const Indices& free) const { return lattice_.size_of(free); }
  const std::vector<uint32_t>& offsets(const Indices& free, const Indices& operand) {
    return lattice_.offsets(free, operand);
  }
  FloatArray leaf(const Term& t);
  FloatArray make(TermId id);
  FloatArray map(const Term& t);
  FloatArray reduce(const Term& t);
  FloatArray scaled_sum(const Term& t);

  Form& form_;
  Lattice& lattice_;
  Leaf leaf_;
  bool f32_;
  FloatDraw* same_;
  std::map<TermId, FloatArray> known_;
};

class Screen {
 public:
  // `given`: the roots of the input graph, which say what becomes of NaN and infinities; `reference`: their stable
  // forms.
  Screen(Form& form, const std::vector<TermId>& given, std::vector<TermId> reference, uint64_t seed);
  // Why a candidate is refused (empty: it is not), and in how many places it makes something else of an infinity than
  // the input graph does. Such a place is a reason to refuse where the infinity is a score of an exponential, or a
  // result, as it comes in. Elsewhere sums of products, associated anew, are free to say inf - inf.
  struct Verdict {
    std::string why;
    size_t infinities = 0;
  };
  Verdict judge(const std::vector<TermId>& candidate);

 private:
  struct Case {
    std::string name;
    FloatDraw::Leaf leaf;
    enum { ordinary, poison, infinite } kind;
    bool shifted = false;  // ordinary: far from 0, where what cancels must not cost digits
    bool strict = false;   // infinite: any other result is a reason to refuse
    double slack = 4;      // ordinary: how many times the error of the input graph's own form is allowed
  };
  struct Expected {
    std::vector<std::vector<double>> exact, allowed;  // per root; allowed: absolute, NaN cases excluded
    // Where the stable form of the input graph itself leaves a NaN out, or makes something else of an infinity.
    std::vector<std::vector<bool>> exempt;
  };
  Form& form_;
  std::vector<TermId> reference_;
  std::optional<Lattice> lattice_;
  std::vector<Case> cases_;
  std::vector<Expected> expected_;
  std::vector<FloatDraw> rounded_;  // per case; candidates share most of their terms
};

}  // namespace cleave::algebra
