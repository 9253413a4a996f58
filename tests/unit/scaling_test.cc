#include "trireme/study/scaling.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::scaling {
namespace {

PointResult result(int nodes, double rate, int repeat = 1, Mode mode = Mode::kStrong,
                   int tensor = 1) {
  return {{mode, nodes, nodes * tensor, {nodes, 1, tensor}, repeat},
          {.tokens_per_second = rate,
           .step_seconds = 1.0,
           .memory_bandwidth = 10.0 * nodes,
           .steps = 5}};
}

std::vector<RateAt> rates_of(const Law& law, const std::vector<double>& nodes) {
  std::vector<RateAt> rates;
  for (const double n : nodes) rates.push_back({n, law.rate(n)});
  return rates;
}

bool mentions(const Series& series, const std::string& words) {
  for (const std::string& remark : series.remarks) {
    if (remark.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(Scaling, StudentsQuantiles) {
  // Closed forms: tan(0.475 pi) for one degree of freedom, for two 0.95 sqrt(2 / (1 - 0.95^2)).
  EXPECT_NEAR(student_t(1), std::tan(0.475 * std::numbers::pi), 1e-11);
  EXPECT_NEAR(student_t(2), 0.95 * std::sqrt(2.0 / (1.0 - 0.95 * 0.95)), 1e-12);
  // Published tables, to their last digit.
  EXPECT_NEAR(student_t(11), 2.200985, 5e-7);
  EXPECT_NEAR(student_t(30), 2.042272, 5e-7);
  EXPECT_NEAR(student_t(1000), 1.962339, 5e-7);
  for (int n = 1; n < 40; ++n) EXPECT_GT(student_t(n), student_t(n + 1)) << n;
  EXPECT_THROW(student_t(0), InternalError);
}

TEST(Scaling, AnEstimateOfRepeats) {
  const std::vector<double> values = {9.0, 10.0, 11.0};
  const Estimate three = estimate(values);
  EXPECT_DOUBLE_EQ(three.mean, 10.0);
  EXPECT_NEAR(three.half_width.value(), 4.3027 / std::sqrt(3.0), 1e-4);
  EXPECT_FALSE(estimate(std::vector<double>{7.0}).half_width.has_value());
  EXPECT_EQ(estimate(std::vector<double>{7.0, 7.0}).half_width, 0.0);
}

TEST(Scaling, FitsFindKnownParameters) {
  const Law amdahl{.one_node = 250.0, .contention = 0.04};
  const Law fitted = fit_amdahl(rates_of(amdahl, {1, 2, 4, 8, 16})).value();
  EXPECT_NEAR(fitted.one_node, 250.0, 1e-9);
  EXPECT_NEAR(fitted.contention, 0.04, 1e-12);
  EXPECT_NEAR(fitted.error, 0.0, 1e-12);
  EXPECT_FALSE(fitted.peak().has_value());
  EXPECT_NEAR(fitted.half_efficiency().value(), 26.0, 1e-9);

  const Law universal{.one_node = 250.0, .contention = 0.04, .coherency = 0.0006};
  const Law found = fit_universal(rates_of(universal, {1, 2, 4, 8, 16, 32})).value();
  EXPECT_NEAR(found.one_node, 250.0, 1e-6);
  EXPECT_NEAR(found.contention, 0.04, 1e-9);
  EXPECT_NEAR(found.coherency, 0.0006, 1e-11);
  EXPECT_NEAR(found.peak().value(), 40.0, 1e-4);  // sqrt(0.96 / 0.0006)
  const double half = found.half_efficiency().value();
  EXPECT_NEAR(found.rate(half), 0.5 * half * found.one_node, 1e-6);
  // The peak is one: slower on both sides.
  EXPECT_GT(found.rate(40), found.rate(39));
  EXPECT_GT(found.rate(40), found.rate(41));
}

TEST(Scaling, FitsDoNotNeedOneNode) {
  const Law law{.one_node = 3.0, .contention = 0.1, .coherency = 0.001};
  const Law found = fit_universal(rates_of(law, {4, 8, 12, 64})).value();
  EXPECT_NEAR(found.one_node, 3.0, 1e-8);
  EXPECT_NEAR(found.contention, 0.1, 1e-8);
  EXPECT_NEAR(found.coherency, 0.001, 1e-10);
}

TEST(Scaling, NoiseMovesAFitOnlyALittle) {
  const Law law{.one_node = 100.0, .contention = 0.05, .coherency = 0.001};
  std::vector<RateAt> rates = rates_of(law, {1, 2, 4, 8, 16, 32});
  for (std::size_t i = 0; i < rates.size(); ++i) rates[i].rate *= i % 2 == 0 ? 1.01 : 0.99;
  const Law found = fit_universal(rates).value();
  EXPECT_NEAR(found.contention, 0.05, 0.02);
  EXPECT_NEAR(found.coherency, 0.001, 0.0005);
  EXPECT_GT(found.error, 0.002);
  EXPECT_LT(found.error, 0.01);
}

TEST(Scaling, FitsOfTooLittleAreNone) {
  EXPECT_FALSE(fit_amdahl({}).has_value());
  EXPECT_FALSE(fit_amdahl(std::vector<RateAt>{{1, 5}}).has_value());
  EXPECT_FALSE(fit_amdahl(std::vector<RateAt>{{2, 5}, {2, 6}, {2, 5}}).has_value());
  EXPECT_TRUE(fit_amdahl(std::vector<RateAt>{{1, 5}, {2, 9}}).has_value());
  EXPECT_FALSE(fit_universal(std::vector<RateAt>{{1, 5}, {2, 9}, {2, 9.5}}).has_value());
  EXPECT_FALSE(fit_amdahl(std::vector<RateAt>{{1, 0}, {2, 9}}).has_value());
  EXPECT_FALSE(fit_amdahl(std::vector<RateAt>{{1, std::nan("")}, {2, 9}}).has_value());
}

TEST(Scaling, PerfectAndSuperlinearScalingHaveNoLoss) {
  for (const double gain : {2.0, 2.2}) {
    const std::vector<RateAt> rates = {{1, 10}, {2, 10 * gain}, {4, 10 * gain * gain}};
    const Law law = fit_universal(rates).value();
    EXPECT_NEAR(law.contention, 0.0, 1e-12);
    EXPECT_NEAR(law.coherency, 0.0, 1e-12);
    EXPECT_GE(law.contention, 0.0);
    EXPECT_GE(law.coherency, 0.0);
    EXPECT_NEAR(fit_amdahl(rates).value().contention, 0.0, 1e-12);
  }
}

TEST(Scaling, SlowerWithEveryNodeHasItsPeakAtOne) {
  const Law law = fit_universal(std::vector<RateAt>{{1, 10}, {2, 8}, {4, 5}}).value();
  EXPECT_LE(law.peak().value_or(1.0), 2.0);
  EXPECT_LT(law.rate(4), law.rate(1));
}

TEST(Scaling, SpeedupAndEfficiencyArePerNode) {
  const std::vector<PointResult> results = {result(2, 100, 1), result(4, 180, 1),
                                            result(8, 320, 1), result(8, 340, 2),
                                            result(4, 180, 2), result(2, 100, 2)};
  const Series series = analyse(results).at(0);
  ASSERT_EQ(series.counts.size(), 3u);
  EXPECT_EQ(series.name(), "strong, pipeline 1 x tensor 1");
  EXPECT_EQ(series.counts[2].repeats, 2);
  EXPECT_DOUBLE_EQ(series.counts[0].speedup.mean, 1.0);
  EXPECT_EQ(series.counts[0].efficiency.half_width, 0.0);
  EXPECT_DOUBLE_EQ(series.counts[1].speedup.mean, 1.8);
  EXPECT_DOUBLE_EQ(series.counts[1].efficiency.mean, 0.9);
  EXPECT_DOUBLE_EQ(series.counts[2].efficiency.mean, 0.825);
  EXPECT_DOUBLE_EQ(series.counts[2].added_rate.value(), 37.5);  // 150 by four nodes
  EXPECT_DOUBLE_EQ(series.counts[2].added_bandwidth.value(), 10.0);
  EXPECT_FALSE(series.counts[0].added_rate.has_value());
  // 12.7062 * 14.142 / sqrt(2) of the rate; the base has no spread.
  EXPECT_NEAR(series.counts[2].rate.half_width.value(), 127.06, 0.01);
  EXPECT_NEAR(series.counts[2].speedup.half_width.value(), 1.2706, 1e-4);
  EXPECT_NEAR(series.counts[2].efficiency.half_width.value(), 1.2706 / 4, 1e-4);
}

TEST(Scaling, SeriesAreModesAndGrids) {
  const std::vector<PointResult> results = {result(1, 10), result(1, 11, 1, Mode::kWeak),
                                            result(2, 19), result(1, 12, 1, Mode::kStrong, 2),
                                            result(2, 20, 1, Mode::kWeak)};
  const std::vector<Series> all = analyse(results);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].counts.size(), 2u);
  EXPECT_EQ(all[1].mode, Mode::kWeak);
  EXPECT_EQ(all[2].name(), "strong, pipeline 1 x tensor 2");
  EXPECT_TRUE(analyse({}).empty());
}

TEST(Scaling, RemarksSayWhatAFitIsWorth) {
  const Series one = analyse(std::vector<PointResult>{result(1, 10)}).at(0);
  EXPECT_FALSE(one.amdahl || one.universal);
  EXPECT_TRUE(mentions(one, "one number of nodes"));
  const Series same = analyse(std::vector<PointResult>{result(2, 10), result(2, 10, 2)}).at(0);
  EXPECT_FALSE(same.amdahl.has_value());
  EXPECT_EQ(same.counts.at(0).rate.half_width, 0.0);
  const Series two = analyse(std::vector<PointResult>{result(1, 10), result(2, 18)}).at(0);
  EXPECT_TRUE(two.amdahl && !two.universal);
  EXPECT_TRUE(mentions(two, "two numbers"));
  EXPECT_FALSE(mentions(two, "superlinear"));
  const Series more = analyse(std::vector<PointResult>{result(1, 10), result(2, 25)}).at(0);
  EXPECT_TRUE(mentions(more, "superlinear at 2 nodes (efficiency 1.25)"));
}

TEST(Scaling, SharesOfTimeAddUpToOne) {
  const auto sum = [](const TimeShares& s) {
    return s.computation + s.communication + s.data + s.checkpoint;
  };
  const TimeShares usual = shares_of({.step_seconds = 0.9,
                                      .communication_seconds = 0.2,
                                      .data_seconds = 0.05,
                                      .checkpoint_seconds = 0.1});
  EXPECT_DOUBLE_EQ(usual.communication, 0.2);
  EXPECT_DOUBLE_EQ(usual.data, 0.05);
  EXPECT_DOUBLE_EQ(usual.checkpoint, 0.1);
  EXPECT_NEAR(usual.computation, 0.65, 1e-12);
  // The slowest ranks of two kinds, added.
  const TimeShares crowded =
      shares_of({.step_seconds = 1.0, .communication_seconds = 0.9, .data_seconds = 0.9});
  EXPECT_NEAR(sum(crowded), 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(crowded.communication, 0.5);
  EXPECT_DOUBLE_EQ(sum(shares_of(TimeSpent{})), 1.0);
}

TEST(Scaling, NamesOfPoints) {
  EXPECT_EQ((Point{Mode::kWeak, 2, 8, {2, 1, 4}, 3}).name(), "weak-n2-d2p1t4-r3");
}

}  // namespace
}  // namespace trireme::scaling
