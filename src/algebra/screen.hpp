// Screening: what exact arithmetic cannot see. Terms are computed in f32 and in float64 on small extents, with ordinary
// and adversarial data; a candidate that is much less accurate than the input graph's stable form, or that loses a NaN
// which the input graph lets through, is refused with the reason.
#pragma once

#include <functional>
#include <string>

#include "algebra/form.hpp"

namespace cleave::algebra {

struct FloatArray {
  Indices free;  // row-major in this order
  std::vector<double> values;
};

// Computes terms on concrete numbers; every operation is rounded to f32, or none is.
class FloatDraw {
 public:
  using Leaf = std::function<double(uint32_t source, std::span<const int64_t> coordinates)>;
  FloatDraw(Form& form, std::vector<int64_t> label_extents, Leaf leaf, bool f32)
      : form_(form), extents_(std::move(label_extents)), leaf_(std::move(leaf)), f32_(f32) {}
  const FloatArray& of(TermId id);

 private:
  double rounded(double v) const { return f32_ ? round_to(DType::f32, v) : v; }
  int64_t extent(IndexId i) const { return extents_[form_.at(i).label]; }
  size_t size_of(const Indices& free) const;
  std::vector<size_t> offsets(const Indices& free, const Indices& operand) const;
  FloatArray make(TermId id);
  FloatArray map(const Term& t);
  FloatArray reduce(const Term& t);
  FloatArray scaled_sum(const Term& t);

  Form& form_;
  std::vector<int64_t> extents_;
  Leaf leaf_;
  bool f32_;
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
  };
  struct Expected {
    std::vector<std::vector<double>> exact, allowed;  // per root; allowed: absolute, NaN cases excluded
  };
  Form& form_;
  std::vector<TermId> reference_;
  std::vector<int64_t> extents_;
  std::vector<Case> cases_;
  std::vector<Expected> expected_;
  std::vector<FloatDraw> rounded_;  // per case; candidates share most of their terms
};

}  // namespace cleave::algebra
