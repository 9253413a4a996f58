#include "trireme/study/scaling.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/study/study_page.h"

#include "study/scaling_files.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme::scaling {
namespace {

PointResult result(int nodes, double rate, int repeat = 1, Mode mode = Mode::kStrong,
                   int tensor = 1) {
  return {{mode, nodes, nodes * tensor, {nodes, 1, tensor}, repeat},
          {.units_per_second = rate,
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

TEST(Scaling, NoLawIsFittedToRepeatsThatScatterWidely) {
  // With 3 repeats of 100 and 100 +- s the half width is 4.3027 s / sqrt(3) = 2.484 s.
  const auto study = [](double s) {
    std::vector<PointResult> results;
    for (int nodes : {1, 2, 4}) {
      const double rate = 100.0 * nodes, off = nodes == 2 ? s * nodes : 0.0;
      for (int repeat : {-1, 0, 1}) results.push_back(result(nodes, rate + repeat * off, repeat));
    }
    return analyse(results).at(0);
  };
  const Series calm = study(4.0);  // 9.9 %
  EXPECT_TRUE(calm.amdahl && calm.universal);
  EXPECT_FALSE(mentions(calm, "scatter"));
  const Series wide = study(4.1);  // 10.2 %
  EXPECT_FALSE(wide.amdahl || wide.universal);
  EXPECT_TRUE(mentions(wide,
                       "no law is fitted, because the repeats at 2 nodes scatter too widely "
                       "(tokens/s ± 10 % with 95 % confidence; the limit is 10 %)"));
  EXPECT_FALSE(mentions(wide, "three numbers"));  // says how far to trust a fit
  const std::string page = page_of_study({.facts = {}, .done = 9, .planned = 9, .series = {wide}});
  EXPECT_NE(page.find("the repeats at 2 nodes scatter too widely"), std::string::npos);
  for (const char* law : {"Amdahl</text>", "universal law</text>", "fitted law"}) {
    EXPECT_EQ(page.find(law), std::string::npos) << law;
    EXPECT_NE(page_of_study({.facts = {}, .done = 9, .planned = 9, .series = {calm}}).find(law),
              std::string::npos)
        << law;
  }
  const Series once = analyse(std::vector{result(1, 10), result(2, 18), result(2, 18, 2)}).at(0);
  EXPECT_TRUE(once.amdahl.has_value());
  EXPECT_TRUE(mentions(once, "a single repeat at 1 node does not tell"));
}

// Two repeats each, without scatter.
Series series_of(const std::vector<std::pair<int, double>>& rates) {
  std::vector<PointResult> results;
  for (const auto& [nodes, rate] : rates) {
    for (int repeat : {1, 2}) results.push_back(result(nodes, rate, repeat));
  }
  return analyse(results).at(0);
}

TEST(Scaling, TheVerdict) {
  // 1e9 tokens at 1e6 / 3.6 a second are an hour.
  const double hour = 1e6 / 3.6;
  EXPECT_DOUBLE_EQ(node_hours_per_billion(series_of({{4, 2 * hour}}).counts[0]), 2.0);
  EXPECT_EQ(verdict_of(series_of({{1, hour}}), 0.8),
            "1 node-hours per billion tokens at 1 node; other numbers of nodes were not measured");
  const Series mixed = series_of({{1, hour}, {2, 1.8 * hour}, {4, 2.0 * hour}, {8, 7.9 * hour}});
  EXPECT_EQ(verdict_of(mixed, 0.8),
            "efficient (at least 80 %) up to 2 nodes, which reach 90 ± 0 %; 1.11 node-hours per "
            "billion tokens there, 1 at 1 node; 4 nodes reach 50 ± 0 %");
  EXPECT_EQ(verdict_of(mixed, 0.5),
            "efficient (at least 50 %) up to 8 nodes, the most that were measured, which reach "
            "99 ± 0 %; 1.01 node-hours per billion tokens there, 1 at 1 node");
  EXPECT_EQ(verdict_of(mixed, 0.95),
            "not efficient (at least 95 %) beyond 1 node; 1 node-hours per billion tokens there, "
            "1.11 at 2 nodes; 2 nodes reach 90 ± 0 %");
}

TEST(Scaling, IsToldInTheUnitOfTheRuns) {
  std::vector<PointResult> results = {result(1, 3600), result(2, 5400), result(2, 9000, 2)};
  for (PointResult& one : results) one.measured.unit = {"sample", "samples"};
  const Series series = analyse(results).at(0);
  EXPECT_TRUE(mentions(series, "scatter too widely (samples/s ± "));
  EXPECT_NE(verdict_of(series, 0.8).find("node-hours per billion samples"), std::string::npos);
  EXPECT_NE(table_of({series}, {}).find("samples/s"), std::string::npos);
  const std::string page = page_of_study({.facts = {},
                                          .done = 3,
                                          .planned = 3,
                                          .series = {series},
                                          .runs = results,
                                          .unit = {"sample", "samples"}});
  EXPECT_NE(page.find("samples/s"), std::string::npos);
  EXPECT_EQ(page.find("token"), std::string::npos);
}

TEST(Scaling, TheVerdictSaysWhatRepeatsLeaveOpen) {
  const auto ends_with = [](const Series& series, double least, const char* end) {
    return verdict_of(series, least).ends_with(end);
  };
  const std::vector<PointResult> scattered = {result(1, 100), result(1, 100, 2), result(2, 169),
                                              result(2, 171, 2)};  // 85 +- 6.4 %
  const Series series = analyse(scattered).at(0);
  EXPECT_TRUE(ends_with(series, 0.7, "at 1 node"));
  EXPECT_TRUE(ends_with(series, 0.8, "; the repeats scatter too widely to be sure of it"));
  EXPECT_TRUE(ends_with(series, 0.9, "; the repeats scatter too widely to be sure of it"));
  EXPECT_TRUE(ends_with(series, 0.95, "2 nodes reach 85 ± 6 %"));
  const Series once = analyse(std::vector{result(1, 100), result(2, 170)}).at(0);
  EXPECT_TRUE(ends_with(once, 0.8, "; single repeats do not tell how sure this is"));
  EXPECT_TRUE(mentions(once, "a single repeat at 1 node does not tell how widely repeats scatter"));
  EXPECT_EQ(table_of({once}, {}).find("±"), std::string::npos);
}

StudyPlan plan_of(std::vector<Mode> modes, std::vector<int> nodes, int repeats) {
  StudyPlan plan;
  plan.config.data.train = {{"data.h5", 1.0}};
  plan.nodes = std::move(nodes);
  plan.modes = std::move(modes);
  plan.grids = {GridShape()};
  plan.repeats = repeats;
  return plan;
}

std::vector<std::string> names_of(const std::vector<Point>& points) {
  std::vector<std::string> names;
  for (const Point& point : points) names.push_back(point.name());
  return names;
}

TEST(Scaling, StrongAndWeakAreOnePointAtTheFewestNodes) {
  const StudyPlan both = plan_of({Mode::kStrong, Mode::kWeak}, {2, 4}, 2);
  EXPECT_EQ(names_of(points_of(both)),
            (std::vector<std::string>{"strong-n2-d2p1t1-r1", "strong-n4-d4p1t1-r1",
                                      "weak-n4-d4p1t1-r1", "strong-n2-d2p1t1-r2",
                                      "strong-n4-d4p1t1-r2", "weak-n4-d4p1t1-r2"}));
  const StudyPlan weak = plan_of({Mode::kWeak, Mode::kStrong}, {2, 4}, 1);
  EXPECT_EQ(
      names_of(points_of(weak)),
      (std::vector<std::string>{"weak-n2-d2p1t1-r1", "weak-n4-d4p1t1-r1", "strong-n4-d4p1t1-r1"}));
  // They are one point because they train the same thing.
  for (const Point& point : points_of(both)) {
    const auto twin = twin_of(both, point);
    EXPECT_EQ(twin.has_value(), point.nodes == 2);
    if (!twin) continue;
    EXPECT_NE(twin->mode, point.mode);
    EXPECT_EQ(config_to_ini(config_of(both, point, "run")),
              config_to_ini(config_of(both, *twin, "run")));
  }
}

TEST(Scaling, AllPointsHaveOneMicroBatch) {
  const auto settled = [](std::vector<int> nodes, const std::string& folder = "") {
    StudyPlan plan = plan_of({Mode::kStrong, Mode::kWeak}, std::move(nodes), 2);
    plan.config.model.keys = {{"preset", "test-gpt"}};
    settle_micro(plan, points_of(plan), folder, {});
    return int{plan.config.batch.micro};
  };
  EXPECT_EQ(settled({1}), 32);
  EXPECT_EQ(settled({1, 2, 4}), 8);
  // A study goes on with the one that it began with.
  const testing::TemporaryFolder folder;
  StudyPlan begun = plan_of({Mode::kStrong}, {1}, 1);
  begun.config.batch.micro = 2;
  { const StudyFolder held(folder.path().string(), begun); }
  EXPECT_EQ(settled({1, 2, 4}, folder.path().string()), 2);
}

TEST(Scaling, CheckpointsAreCountedInSteps) {
  StudyPlan plan = plan_of({Mode::kStrong}, {1}, 1);
  plan.config.checkpoint.every = Steps::of_epochs(2);
  // bad input: `scale`: `checkpoint.every` in epochs | checkpoint.every is 2ep, but a study counts
  // checkpoints by steps: give steps | 2
  EXPECT_EQ(testing::message_of([&] { config_of(plan, points_of(plan).front(), "run"); }),
            "checkpoint.every is 2ep, but a study counts checkpoints by steps: give steps");
}

TEST(Scaling, ARunAtTheFewestNodesCountsInBothModes) {
  const StudyPlan both = plan_of({Mode::kStrong, Mode::kWeak}, {1, 2}, 2);
  // An earlier version measured the twins separately.
  const std::vector<PointResult> results = {result(1, 100), result(1, 110, 1, Mode::kWeak),
                                            result(2, 150), result(2, 190, 1, Mode::kWeak)};
  const std::vector<Series> series = analyse(results_by_mode(both, results));
  ASSERT_EQ(series.size(), 2u);
  for (const Series& one : series) {
    EXPECT_EQ(one.counts.at(0).repeats, 2) << one.name();
    EXPECT_DOUBLE_EQ(one.counts.at(0).rate.mean, 105.0) << one.name();
    EXPECT_EQ(one.counts.at(1).repeats, 1) << one.name();
  }
  EXPECT_EQ(series[0].mode, Mode::kStrong);
  EXPECT_DOUBLE_EQ(series[0].counts.at(1).rate.mean, 150.0);
  EXPECT_DOUBLE_EQ(series[1].counts.at(1).rate.mean, 190.0);
  // A study of one mode counts what the other has measured there.
  const StudyPlan weak = plan_of({Mode::kWeak}, {1, 2}, 2);
  const std::vector<Series> alone = analyse(results_by_mode(weak, std::vector{results[0]}));
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].mode, Mode::kWeak);
}

TEST(Scaling, ADamagedRequestIsOneLine) {
  const PointRequest good{5, 0, 12.5, "srun"};
  const PointRequest read = request_in(request_text(good), "point.json", 20);
  EXPECT_EQ(read.warmup, 5);
  EXPECT_EQ(read.checkpoint_mtbf_hours, 12.5);
  EXPECT_EQ(read.launcher, "srun");
  // The request of a job that an earlier version has queued.
  const char* old = R"({"warmup": 5, "checkpoint_every": 0, "checkpoint_mtbf_hours": 0})";
  EXPECT_EQ(request_in(old, "point.json", 20).launcher, "not known");
  for (const char* text :
       {"", "{\"warmup\": 5", "[]", "{}",
        R"({"warmup": "5", "checkpoint_every": 0, "checkpoint_mtbf_hours": 0, "launcher": ""})",
        R"({"warmup": 0, "checkpoint_every": 0, "checkpoint_mtbf_hours": 0, "launcher": ""})",
        R"({"warmup": 20, "checkpoint_every": 0, "checkpoint_mtbf_hours": 0, "launcher": ""})",
        R"({"warmup": 5, "checkpoint_every": -1, "checkpoint_mtbf_hours": 0, "launcher": ""})"}) {
    EXPECT_THROW(request_in(text, "point.json", 20), RunFolderError) << text;
  }
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

TEST(Scaling, AGridThatOneNodeCannotHoldIsComparedWithOneReplica) {
  StudyPlan plan = plan_of({Mode::kStrong}, {1, 2, 4}, 1);
  plan.grids = {{1, 4, 1}, {1, 2, 1}};
  EXPECT_EQ(names_of(points_of(plan)),
            (std::vector<std::string>{"strong-n1-d1p1t1-r1", "strong-n4-d1p4t1-r1",
                                      "strong-n2-d1p2t1-r1", "strong-n4-d2p2t1-r1"}));
  plan.nodes = {1, 2};
  EXPECT_EQ(testing::message_of([&] { points_of(plan); }),
            "--grids 4x1 needs a multiple of 4 ranks, but 2 nodes have 2: give other --nodes or "
            "--ranks-per-node");
  const auto staged = [](int nodes, GridShape grid, double rate) {
    PointResult made = result(nodes, rate);
    made.point.grid = grid;
    return made;
  };
  const std::vector<Series> series =
      analyse(std::vector{staged(1, {1, 1, 1}, 100), staged(4, {1, 4, 1}, 320),
                          staged(2, {1, 2, 1}, 180), staged(4, {2, 2, 1}, 300)});
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series[0].counts.size(), 1u);
  ASSERT_EQ(series[1].counts.size(), 2u);
  EXPECT_EQ(series[1].counts[0].grid, GridShape(1, 1, 1));
  EXPECT_DOUBLE_EQ(series[1].counts[1].speedup.mean, 3.2);
  EXPECT_DOUBLE_EQ(series[1].counts[1].efficiency.mean, 0.8);
  EXPECT_FALSE(series[1].counts[1].efficiency.half_width.has_value());  // of single repeats
  EXPECT_FALSE(series[1].amdahl.has_value());
  EXPECT_TRUE(
      mentions(series[1], "relative to 1x1x1 there; no law is fitted to the one number of"));
  EXPECT_FALSE(mentions(series[1], "no law can be fitted"));
  EXPECT_FALSE(mentions(series[1], "superlinear"));
  EXPECT_TRUE(mentions(series[0], "no law can be fitted to one number of nodes"));
  ASSERT_EQ(series[2].counts.size(), 3u);
  EXPECT_DOUBLE_EQ(series[2].counts[2].speedup.mean, 3.0);
  EXPECT_TRUE(series[2].amdahl.has_value());  // of its own two numbers of nodes
  EXPECT_FALSE(mentions(series[2], "no law is fitted"));
  // What is superlinear is so compared with that node.
  const std::vector<Series> more =
      analyse(std::vector{staged(1, {1, 1, 1}, 100), staged(4, {1, 4, 1}, 500)});
  EXPECT_TRUE(mentions(more[1], "superlinear at 4 nodes (efficiency 1.25)"));
  // A node of several ranks holds it: nothing else stands in for what is not measured yet.
  PointResult four = staged(1, {4, 1, 1}, 100), two = staged(2, {2, 4, 1}, 180);
  four.point.ranks = 4;
  two.point.ranks = 8;
  EXPECT_EQ(analyse(std::vector{four, two})[1].counts.size(), 1u);
}

TEST(Scaling, NodesThatShareAMachineHaveACeiling) {
  const auto on = [](int nodes, double processors) {
    PointResult made = result(nodes, 100.0 * nodes);
    made.conditions.emplace().processors = processors;
    return made;
  };
  const Series shared = analyse(std::vector{on(1, 1.0), on(4, 2.0)}).at(0);
  EXPECT_TRUE(
      mentions(shared,
               "the ceiling of the speedup is 2: nodes share a machine, of which 1 node "
               "could use 1 processor and 4 nodes 2 in all; with an equal quota of processor "
               "time for each node it would be 4"));
  EXPECT_TRUE(mentions(analyse(std::vector{on(1, 1.0), on(256, 128.0)}).at(0),
                       "the ceiling of the speedup is 128: "));
  EXPECT_FALSE(mentions(analyse(std::vector{on(1, 0.5), on(4, 2.0)}).at(0), "ceiling"));
  EXPECT_FALSE(mentions(analyse(std::vector{on(1, 0.0), on(4, 2.0)}).at(0), "ceiling"));
  EXPECT_FALSE(mentions(analyse(std::vector{result(1, 1.0), on(4, 2.0)}).at(0), "ceiling"));
}

TEST(Scaling, NamesOfPoints) {
  EXPECT_EQ((Point{Mode::kWeak, 2, 8, {2, 1, 4}, 3}).name(), "weak-n2-d2p1t4-r3");
}

}  // namespace
}  // namespace trireme::scaling
