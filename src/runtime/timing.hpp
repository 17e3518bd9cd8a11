// Clocks and fair comparison on a noisy machine (benchmarks.md: pairs in ABBA order, thread CPU time, medians of
// ratios).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace cleave::runtime {

double thread_cpu_seconds();  // of the calling thread
double wall_seconds();        // monotonic

double median(std::span<const double> x);
// The p-quantile, 0 <= p <= 1, by the nearest rank below.
double quantile(std::span<const double> x, double p);

struct Interval {
  double low = 0, high = 0;
};
// 95 % bootstrap interval of the median (percentiles of 1000 resamples, seeded).
Interval bootstrap_median(std::span<const double> x, uint64_t seed = 1);

// The time of one run of `work` in seconds of thread CPU time, repeated until `at_least` seconds have passed; the
// shortest of `rounds` such batches.
double time_best(const std::function<void()>& work, double at_least = 2e-3, int rounds = 5);

struct CompareOptions {
  int pairs = 21;
  double seconds_a_side = 2e-3;
  bool bracket = true;  // measure the FMA peak beside each pair, drop pairs whose peaks differ by > 10 %
  // Wall time instead of thread CPU time, for threaded work. Pairs in which a thread was preempted are dropped, and up
  // to three times as many taken; when too few are left, all count, and the interval is that of single pairs
  // (p10..p90).
  bool wall = false;
};
struct Comparison {
  double ratio = 1;                     // time of b / time of a: above 1, a is faster
  Interval interval;                    // 95 % of the ratio
  double seconds_a = 0, seconds_b = 0;  // medians of one run
  double peak_gflops = 0;               // median of the peaks measured beside (bracket)
  Interval control;                     // p10..p90 of a against a in the same run
  int pairs = 0;                        // kept
  bool disturbed = false;               // other work ran beside nearly all of them
  // The interval excludes 1, the effect is over 2 % and outside the control's spread.
  bool a_wins() const { return interval.low > 1 && ratio > 1.02 && ratio > control.high; }
  bool b_wins() const { return interval.high < 1 && ratio < 1 / 1.02 && ratio < control.low; }
};
Comparison compare(const std::function<void()>& a, const std::function<void()>& b, const CompareOptions& options = {});

}  // namespace cleave::runtime
