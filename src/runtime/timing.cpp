#include "runtime/timing.hpp"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/rng.hpp"
#include "runtime/calibrate.hpp"

namespace cleave::runtime {

namespace {

double seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// How often a thread of this process had to make room for another program.
int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

double thread_cpu_seconds() { return seconds(CLOCK_THREAD_CPUTIME_ID); }
double wall_seconds() { return seconds(CLOCK_MONOTONIC); }

double quantile(std::span<const double> x, double p) {
  CHECK(!x.empty(), "a quantile of nothing");
  std::vector<double> y(x.begin(), x.end());
  const auto k = static_cast<std::ptrdiff_t>(p * static_cast<double>(y.size() - 1));
  std::nth_element(y.begin(), y.begin() + k, y.end());
  return y[static_cast<size_t>(k)];
}

double median(std::span<const double> x) {
  CHECK(!x.empty(), "a median of nothing");
  std::vector<double> y(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  const size_t n = y.size();
  return n % 2 ? y[n / 2] : 0.5 * (y[n / 2 - 1] + y[n / 2]);
}

Interval bootstrap_median(std::span<const double> x, uint64_t seed) {
  constexpr int kResamples = 1000;
  Rng rng(seed);
  std::vector<double> medians, sample(x.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& s : sample) s = x[rng.below(x.size())];
    medians.push_back(median(sample));
  }
  return {quantile(medians, 0.025), quantile(medians, 0.975)};
}

double time_best(const std::function<void()>& work, double at_least, int rounds) {
  double best = INFINITY;
  int64_t repeats = 1;
  for (int r = 0; r < rounds;) {
    const double start = thread_cpu_seconds();
    for (int64_t i = 0; i < repeats; ++i) work();
    const double elapsed = thread_cpu_seconds() - start;
    if (elapsed < at_least && repeats < (int64_t{1} << 40)) {
      repeats = std::max(repeats + 1, static_cast<int64_t>(1.2 * static_cast<double>(repeats) * at_least /
                                                           std::max(elapsed, at_least / 100)));
      continue;
    }
    best = std::min(best, elapsed / static_cast<double>(repeats));
    ++r;
  }
  return best;
}

Comparison compare(const std::function<void()>& a, const std::function<void()>& b, const CompareOptions& options) {
  const auto now = options.wall ? wall_seconds : thread_cpu_seconds;
  auto repeats_for = [&](const std::function<void()>& work) {
    work();  // warm
    int64_t n = 1;
    for (;;) {
      const double start = now();
      for (int64_t i = 0; i < n; ++i) work();
      const double elapsed = now() - start;
      if (elapsed >= options.seconds_a_side || n >= (int64_t{1} << 30)) return n;
      n = std::max(n + 1, static_cast<int64_t>(1.3 * static_cast<double>(n) * options.seconds_a_side /
                                               std::max(elapsed, options.seconds_a_side / 100)));
    }
  };
  const int64_t na = repeats_for(a), nb = repeats_for(b);
  auto time = [&](const std::function<void()>& work, int64_t n) {
    const double start = now();
    for (int64_t i = 0; i < n; ++i) work();
    return (now() - start) / static_cast<double>(n);
  };

  std::vector<double> ratios, controls, times_a, times_b, peaks;
  std::vector<double> all_ratios;  // when every pair would be dropped
  const int attempts = options.wall ? 3 * options.pairs : options.pairs;
  for (int i = 0; i < attempts && static_cast<int>(ratios.size()) < options.pairs; ++i) {
    const double before = options.bracket ? measure_peak_gflops() : 0;
    const int64_t preempted = preemptions();
    // ABBA: a drift over the pair cancels.
    const double a1 = time(a, na), b1 = time(b, nb), b2 = time(b, nb), a2 = time(a, na);
    const bool disturbed = options.wall && preemptions() > preempted;
    const double after = options.bracket ? measure_peak_gflops() : 0;
    const double ratio = (b1 + b2) / (a1 + a2);
    all_ratios.push_back(ratio);
    times_a.push_back(0.5 * (a1 + a2));
    times_b.push_back(0.5 * (b1 + b2));
    controls.push_back(a2 / a1);
    if (options.bracket) peaks.push_back(0.5 * (before + after));
    if (disturbed) continue;
    if (options.bracket && std::fabs(before - after) > 0.1 * std::max(before, after)) continue;
    ratios.push_back(ratio);
  }
  Comparison out;
  out.disturbed = options.wall && 3 * ratios.size() < static_cast<size_t>(options.pairs);
  if (ratios.empty() || out.disturbed) ratios = all_ratios;
  out.ratio = median(ratios);
  out.interval = out.disturbed ? Interval{quantile(ratios, 0.1), quantile(ratios, 0.9)} : bootstrap_median(ratios);
  out.seconds_a = median(times_a);
  out.seconds_b = median(times_b);
  out.control = {quantile(controls, 0.1), quantile(controls, 0.9)};
  out.pairs = static_cast<int>(ratios.size());
  if (!peaks.empty()) out.peak_gflops = median(peaks);
  return out;
}

}  // namespace cleave::runtime
