// Stabilisation: any graph with exponentials -> the same function without avoidable overflow, in the stabilised dialect
// (scaled_reduce, unscale and ordinary operators). Online softmax comes out of it; docs/stabilised.md.
#pragma once

#include "algebra/index_form.hpp"

namespace cleave::algebra {

// How much of what happens beside finite numbers is kept; values that are equal on finite data can differ in it, so a
// search tries the cheaper ones and looks at what they do to infinities and NaN.
enum class Care : uint8_t {
  least,       // where a row of scores holds +inf, the sum of exponentials below its maximum is NaN, and its logarithm
  logarithms,  // that logarithm is +inf, except where it is subtracted from something (log_softmax of such a row is
               // NaN)
  most,        // all such logarithms are; and what a selection leaves out is not read, not even as a factor of 0
};

// The stable form of a term. Terms without exponentials come back as they are.
TermId stabilise(Form& form, TermId term, Care care = Care::most);

// For any graph without composites; a graph without exponentials comes back as it is.
graph::Graph stabilise(const graph::Graph& graph);

}  // namespace cleave::algebra
