#include "runtime/timing.hpp"

#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "runtime/calibrate.hpp"

namespace cleave::runtime {
namespace {

TEST(Timing, MediansAndQuantiles) {
  const double x[] = {5, 1, 4, 2, 3};
  EXPECT_EQ(median(x), 3);
  EXPECT_EQ(median(std::span(x, 4)), 3);  // of 1 2 4 5
  EXPECT_EQ(quantile(x, 0), 1);
  EXPECT_EQ(quantile(x, 1), 5);
  EXPECT_EQ(quantile(x, 0.5), 3);
}

TEST(Timing, BootstrapIntervalsHoldTheMedianAndShrink) {
  Rng rng(2);
  std::vector<double> few, many;
  for (int i = 0; i < 2000; ++i) {
    const double v = 1.5 + 0.2 * rng.normal();
    if (i < 21) few.push_back(v);
    many.push_back(v);
  }
  const Interval a = bootstrap_median(few), b = bootstrap_median(many);
  EXPECT_LE(a.low, median(few));
  EXPECT_GE(a.high, median(few));
  EXPECT_LT(b.low, 1.5);
  EXPECT_GT(b.high, 1.5);
  EXPECT_LT(b.high - b.low, 0.5 * (a.high - a.low));
  EXPECT_EQ(bootstrap_median(few).low, a.low);  // seeded
}

TEST(Timing, CallsAWinOnlyOutsideTheIntervalAndTheControl) {
  Comparison c;
  c.ratio = 1.1, c.interval = {1.05, 1.15}, c.control = {0.99, 1.01};
  EXPECT_TRUE(c.a_wins());
  EXPECT_FALSE(c.b_wins());
  c.control.high = 1.2;
  EXPECT_FALSE(c.a_wins());
  c.control.high = 1.01, c.interval.low = 0.99;
  EXPECT_FALSE(c.a_wins());
  c.ratio = 1.01, c.interval = {1.005, 1.015};
  EXPECT_FALSE(c.a_wins());
}

TEST(Timing, ComparesTwoWorkloads) {
  volatile double sink = 0;
  auto spin = [&](int n) {
    for (int i = 0; i < n; ++i) sink = sink + 1;
  };
  const Comparison c =
      compare([&] { spin(1000); }, [&] { spin(4000); }, {.pairs = 5, .seconds_a_side = 2e-4, .bracket = false});
  EXPECT_EQ(c.pairs, 5);
  EXPECT_GT(c.seconds_a, 0);
  EXPECT_LE(c.interval.low, c.ratio);
  EXPECT_GE(c.interval.high, c.ratio);
  EXPECT_GT(c.seconds_b, c.seconds_a);  // four times the work
}

TEST(Calibrate, MeasuresPositiveCeilings) {
  EXPECT_GT(measure_peak_gflops(4), 0.1);
  EXPECT_GT(measure_peak_gflops(Isa::generic, 4), 0.01);
  EXPECT_GT(measure_read_gbytes(64 << 10), 0.1);
}

}  // namespace
}  // namespace cleave::runtime
