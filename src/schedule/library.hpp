// Library statements (scans, arg-reductions, top-k) as sequential tile code over the rows of a dense tensor.
#pragma once

#include <functional>

#include "itgraph/itgraph.hpp"

namespace cleave::schedule {

std::vector<tile::Statement> library_kernel(const itgraph::Library& library, const itgraph::Program& it,
                                            tile::Program& out,
                                            const std::function<tile::BufferId(itgraph::ValueId)>& memory);

}  // namespace cleave::schedule
