// Random inputs in every layout.
#include <cmath>
#include <limits>
#include <numeric>

#include "eval/graph_eval.hpp"
#include "support/random_graph.hpp"

namespace cleave::testing {

using Extents = std::vector<int64_t>;

namespace {

double random_real_value(Choices& c, Magnitude magnitude) {
  switch (magnitude) {
    case Magnitude::tiny: return 1e-3 * c.normal();
    case Magnitude::unit: return c.normal();
    case Magnitude::large: return 100 * c.normal();
    case Magnitude::special:
      switch (c.below(12)) {
        case 1: return -std::numeric_limits<double>::infinity();
        case 2: return std::nan("");
        case 3: return -0.0;
        default: return c.normal();
      }
  }
  return 0;
}

}  // namespace

StridedInput random_input(Choices& c, DType dtype, Extents extents, Magnitude magnitude, Layout layout) {
  StridedInput in{dtype, extents, oracle::dense_strides(extents), 0, {}};
  const size_t rank = extents.size();
  constexpr int64_t kGuard = 5;
  int64_t elements = oracle::product(extents);
  switch (layout) {
    case Layout::dense: break;
    case Layout::transposed: {
      std::vector<size_t> order(rank);
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[c.below(i)]);
      int64_t s = 1;
      for (size_t i = rank; i-- > 0; s *= extents[order[i]]) in.strides[order[i]] = s;
      break;
    }
    case Layout::sliced:
    case Layout::negative: {
      // A window of a larger dense array, perhaps with every second element, perhaps backwards.
      Extents whole = extents;
      std::vector<int64_t> step(rank, 1), skip(rank, 0);
      for (size_t i = 0; i < rank; ++i) {
        step[i] = c.between(1, 2);
        skip[i] = c.between(0, 2);
        whole[i] = extents[i] * step[i] + skip[i] + c.between(0, 2);
      }
      in.strides = oracle::dense_strides(whole);
      for (size_t i = 0; i < rank; ++i) {
        in.offset += skip[i] * in.strides[i];
        in.strides[i] *= step[i];
        if (layout == Layout::negative && extents[i] > 0 && c.chance(70)) {
          in.offset += (extents[i] - 1) * in.strides[i];
          in.strides[i] = -in.strides[i];
        }
      }
      elements = oracle::product(whole);
      break;
    }
    case Layout::repeated: {
      int64_t s = 1;
      for (size_t i = rank; i-- > 0;) {
        if (c.chance(50)) {
          in.strides[i] = 0;
        } else {
          in.strides[i] = s;
          s *= extents[i];
        }
      }
      break;
    }
  }
  in.offset += kGuard;
  in.buffer.resize(static_cast<size_t>((elements + 2 * kGuard) * byte_size(dtype)));
  for (int64_t i = 0; i < elements + 2 * kGuard; ++i) {
    std::byte* at = in.buffer.data() + i * byte_size(dtype);
    if (is_real(dtype))
      store_real(dtype, at, random_real_value(c, magnitude));
    else if (dtype == DType::boolean)
      store_integer(dtype, at, c.chance(70));
    else
      store_integer(dtype, at, is_unsigned(dtype) ? c.between(0, 9) : c.between(-9, 9));
  }
  return in;
}

std::vector<StridedInput> random_inputs(const graph::Graph& graph, uint64_t seed, Magnitude magnitude,
                                        std::optional<Layout> layout) {
  std::vector<StridedInput> out;
  for (graph::ValueId v : oracle::given_leaves(graph)) {
    uint64_t h = 0xcbf29ce484222325ULL ^ seed;
    for (char ch : graph.value(v).name) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3ULL;
    Choices c(h);
    const Layout how = layout ? *layout
                              : c.pick(std::vector{Layout::dense, Layout::transposed, Layout::sliced, Layout::negative,
                                                   Layout::repeated});
    out.push_back(random_input(c, graph.type(v).dtype, graph.extents(v), magnitude, how));
  }
  return out;
}

std::vector<oracle::Tensor> tensors_of(const std::vector<StridedInput>& inputs) {
  std::vector<oracle::Tensor> out;
  for (const StridedInput& i : inputs) out.push_back(i.tensor());
  return out;
}

}  // namespace cleave::testing
