#include "tune/placement.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "base/rng.hpp"

namespace cleave::tune {

namespace {
constexpr int64_t kLine = 64, kLines = 64;  // an offset within 4 KiB
}

Placement::Placement(const Problem& problem, uint64_t seed) {
  Rng rng(seed);
  const auto place = [&](int64_t bytes) {
    const int64_t offset = kLine * static_cast<int64_t>(rng.below(kLines));
    memory_.emplace_back(offset + std::max(bytes, kLine));
    return memory_.back().bytes() + offset;
  };
  for (const Array& a : problem.inputs) {
    uint8_t* data = place(a.bytes());
    if (a.bytes() > 0) std::memcpy(data, a.data.data(), static_cast<size_t>(a.bytes()));
    call_.inputs.push_back(data);
  }
  call_.scalars = problem.scalars;
  for (const graph::Output& o : problem.graph.outputs())
    call_.outputs.push_back(
        place(oracle::product(problem.graph.extents(o.value)) * byte_size(problem.graph.type(o.value).dtype)));
}

runtime::Comparison together(std::vector<runtime::Comparison> places) {
  CHECK(!places.empty(), "comparisons in no place");
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.ratio < b.ratio; });
  runtime::Comparison out = places[(places.size() - 1) / 2];
  out.pairs = 0;
  for (const runtime::Comparison& c : places) {
    out.interval.low = std::min(out.interval.low, c.interval.low);
    out.interval.high = std::max(out.interval.high, c.interval.high);
    out.control.low = std::min(out.control.low, c.control.low);
    out.control.high = std::max(out.control.high, c.control.high);
    out.pairs += c.pairs;
    out.disturbed = out.disturbed || c.disturbed;
  }
  return out;
}

}  // namespace cleave::tune
