// Stabilisation: any graph with exponentials -> the same function without avoidable overflow, in the stabilised dialect
// (scaled_reduce, unscale and ordinary operators). Online softmax comes out of it; docs/stabilised.md.
#pragma once

#include "algebra/index_form.hpp"

namespace cleave::algebra {

// The stable form of a term. Terms without exponentials come back as they are.
TermId stabilise(Form& form, TermId term);

// For any graph without composites; a graph without exponentials comes back as it is.
graph::Graph stabilise(const graph::Graph& graph);

}  // namespace cleave::algebra
