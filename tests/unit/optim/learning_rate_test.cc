#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/optim/learning_rate_table.h"
#include "trireme/optim/schedule.h"

#include "support/message_of.h"

namespace trireme::optim {
namespace {

using trireme::testing::message_of;

using Curve = LearningRateCurve;

// Peak 2, 100 steps, warm-up 10 unless said otherwise: 90 steps are left.
LearningRateSchedule make(Curve curve, std::optional<std::int64_t> decay = {},
                          std::int64_t warmup = 10, std::int64_t total = 100) {
  return LearningRateSchedule(
      {.curve = curve, .peak = 2.0, .total_steps = total, .warmup = warmup, .decay = decay});
}

// The same with a floor.
LearningRateSchedule with_least(Curve curve, double least, std::optional<std::int64_t> decay = {}) {
  return LearningRateSchedule({.curve = curve,
                               .peak = 2.0,
                               .total_steps = 100,
                               .warmup = 10,
                               .decay = decay,
                               .least = least,
                               .period = 20});
}

LearningRateSchedule with_period(std::int64_t period, std::int64_t factor,
                                 std::int64_t total = 100) {
  return LearningRateSchedule({.curve = Curve::kCosineRestarts,
                               .peak = 2.0,
                               .total_steps = total,
                               .warmup = 10,
                               .decay = {},
                               .period = period,
                               .period_factor = factor});
}

// Falls from 1 to 0.
double half_cosine_at(double u) {
  return (1.0 + std::cos(std::numbers::pi * u)) / 2;
}

TEST(LearningRate, WarmUpRisesToThePeakOnEveryCurve) {
  for (const LearningRateCurveKind& kind : learning_rate_curves()) {
    if (!kind.has("warmup")) continue;
    const LearningRateSchedule rate = with_least(kind.curve, 0.5);  // no matter to the warm-up
    EXPECT_DOUBLE_EQ(rate.at(0), 0.2);
    EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
    EXPECT_DOUBLE_EQ(rate.at(9), 2.0);
    const bool stays = kind.curve != Curve::kInverseSqrt;
    EXPECT_DOUBLE_EQ(rate.at(10), stays ? 2.0 : 2.0 * std::sqrt(10.0 / 11));
  }
  for (const Curve curve :
       {Curve::kConstant, Curve::kLinear, Curve::kCosine, Curve::kStep, Curve::kWsd}) {
    EXPECT_DOUBLE_EQ(make(curve, {}, 0).at(0), 2.0);
  }
}

TEST(LearningRate, Constant) {
  EXPECT_DOUBLE_EQ(make(Curve::kConstant).at(99), 2.0);
}

TEST(LearningRate, LinearFallsToZeroAtTheEnd) {
  const LearningRateSchedule rate = make(Curve::kLinear);
  EXPECT_DOUBLE_EQ(rate.at(55), 1.0);
  EXPECT_NEAR(rate.at(99), 2.0 / 90, 1e-15);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.0);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.0);
  EXPECT_DOUBLE_EQ(make(Curve::kLinear, 40).at(30), 1.0);
  EXPECT_DOUBLE_EQ(make(Curve::kLinear, 40).at(50), 0.0);
}

TEST(LearningRate, CosineFallsToATenth) {
  const LearningRateSchedule rate = make(Curve::kCosine);
  EXPECT_NEAR(rate.at(55), 1.1, 1e-12);              // half way between 2 and 0.2
  EXPECT_NEAR(rate.at(40), 0.2 + 0.9 * 1.5, 1e-12);  // u = 1/3: cos = 1/2
  EXPECT_NEAR(rate.at(100), 0.2, 1e-12);
  EXPECT_NEAR(rate.at(1000), 0.2, 1e-12);
  EXPECT_GT(rate.at(99), 0.2);
}

TEST(LearningRate, StepDropsByTenEachThird) {
  const LearningRateSchedule rate = make(Curve::kStep);
  EXPECT_DOUBLE_EQ(rate.at(39), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(40), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(69), 0.2);
  EXPECT_NEAR(rate.at(70), 0.02, 1e-15);
  EXPECT_NEAR(rate.at(99), 0.02, 1e-15);
  EXPECT_DOUBLE_EQ(make(Curve::kStep, 5).at(15), 0.2);
}

TEST(LearningRate, StepDropsByItsFactor) {
  const LearningRateSchedule rate({.curve = Curve::kStep,
                                   .peak = 2.0,
                                   .total_steps = 100,
                                   .warmup = 10,
                                   .decay = 20,
                                   .factor = 0.5});
  EXPECT_DOUBLE_EQ(rate.at(29), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(30), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(50), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(99), 0.125);
}

TEST(LearningRate, WsdIsStableThenFallsToZero) {
  const LearningRateSchedule rate = make(Curve::kWsd);  // 18 steps of decay
  EXPECT_DOUBLE_EQ(rate.at(82), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(83), 2.0 * 17 / 18);
  EXPECT_DOUBLE_EQ(rate.at(91), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(99), 2.0 / 18);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.0);
  EXPECT_DOUBLE_EQ(make(Curve::kWsd, 90).at(10), 2.0);
  EXPECT_DOUBLE_EQ(make(Curve::kWsd, 90).at(55), 1.0);
}

// What the curves were before they had a key for it, to the bit.
TEST(LearningRate, WithoutAFloorOfTheirOwnCurvesEndWhereTheyAlwaysDid) {
  for (std::int64_t t = 10; t <= 120; ++t) {
    const double u = std::min(1.0, static_cast<double>(t - 10) / 90.0);
    const double last = std::clamp(static_cast<double>(100 - t) / 18.0, 0.0, 1.0);
    EXPECT_EQ(make(Curve::kLinear).at(t), 2.0 * (1.0 - u));
    EXPECT_EQ(make(Curve::kCosine).at(t),
              2.0 * (0.1 + 0.45 * (1.0 + std::cos(std::numbers::pi * u))));
    EXPECT_EQ(with_least(Curve::kCosine, 0.1).at(t), make(Curve::kCosine).at(t));
    EXPECT_EQ(make(Curve::kStep).at(t), 2.0 * std::pow(0.1, static_cast<double>((t - 10) / 30)));
    EXPECT_EQ(make(Curve::kWsd).at(t), 2.0 * last);
  }
}

TEST(LearningRate, AFloorIsWhereTheDecayEnds) {
  const LearningRateSchedule linear = with_least(Curve::kLinear, 0.2);
  EXPECT_DOUBLE_EQ(linear.at(10), 2.0);
  EXPECT_DOUBLE_EQ(linear.at(55), 1.2);  // half way between 2 and 0.4
  EXPECT_DOUBLE_EQ(linear.at(100), 0.4);
  EXPECT_DOUBLE_EQ(linear.at(1000), 0.4);
  const LearningRateSchedule cosine = with_least(Curve::kCosine, 0.25);
  EXPECT_NEAR(cosine.at(55), 1.25, 1e-12);
  EXPECT_NEAR(cosine.at(40), 0.5 + 1.5 * half_cosine_at(1.0 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(cosine.at(100), 0.5);
  EXPECT_DOUBLE_EQ(with_least(Curve::kCosine, 0).at(100), 0.0);
  const LearningRateSchedule wsd = with_least(Curve::kWsd, 0.1);  // 18 steps of decay
  EXPECT_DOUBLE_EQ(wsd.at(82), 2.0);
  EXPECT_DOUBLE_EQ(wsd.at(91), 1.1);
  EXPECT_DOUBLE_EQ(wsd.at(100), 0.2);
  EXPECT_DOUBLE_EQ(with_least(Curve::kLinear, 1).at(99), 2.0);
}

TEST(LearningRate, AFloorCutsOffWhatHasNoEnd) {
  const LearningRateSchedule step = with_least(Curve::kStep, 0.03);
  EXPECT_DOUBLE_EQ(step.at(40), 0.2);
  EXPECT_DOUBLE_EQ(step.at(70), 0.06);  // instead of 0.02
  const LearningRateSchedule root = with_least(Curve::kInverseSqrt, 0.5);
  EXPECT_DOUBLE_EQ(root.at(30), 2.0 * std::sqrt(10.0 / 31));
  EXPECT_DOUBLE_EQ(root.at(39), 1.0);
  EXPECT_DOUBLE_EQ(root.at(99), 1.0);
}

TEST(LearningRate, CosineBeginsAgainAfterEachPeriod) {
  const LearningRateSchedule even = with_period(30, 1);
  for (std::int64_t t = 10; t < 100; ++t) {
    const double v = static_cast<double>((t - 10) % 30) / 30;
    EXPECT_NEAR(even.at(t), 2.0 * half_cosine_at(v), 1e-12) << t;
  }
  EXPECT_DOUBLE_EQ(even.at(40), 2.0);
  EXPECT_NEAR(even.at(25), 1.0, 1e-12);
  // The periods have 12, 24 and 48 steps.
  const LearningRateSchedule longer = with_period(12, 2);
  for (const std::int64_t restart : {10, 22, 46, 94}) EXPECT_DOUBLE_EQ(longer.at(restart), 2.0);
  EXPECT_NEAR(longer.at(16), 1.0, 1e-12);
  EXPECT_NEAR(longer.at(34), 1.0, 1e-12);
  EXPECT_NEAR(longer.at(70), 1.0, 1e-12);
  EXPECT_NEAR(longer.at(93), 2.0 * half_cosine_at(47.0 / 48), 1e-12);
  const LearningRateSchedule floored = with_least(Curve::kCosineRestarts, 0.5);  // 20 steps
  EXPECT_NEAR(floored.at(20), 1.5, 1e-12);
  EXPECT_NEAR(floored.at(29), 1.0 + half_cosine_at(0.95), 1e-12);
  EXPECT_DOUBLE_EQ(floored.at(30), 2.0);
  // The longest run, with the shortest and the longest periods.
  const std::int64_t last = 100'000'000'000 - 1;
  EXPECT_DOUBLE_EQ(with_period(1, 1, last + 1).at(last), 2.0);
  EXPECT_NEAR(with_period(100'000, 1'000'000'000, last + 1).at(last), 2.0, 1e-4);
  EXPECT_DOUBLE_EQ(with_period(last, 1, last + 1).at(10), 2.0);
}

TEST(LearningRate, TheInverseSquareRootGoesOnFromTheWarmUp) {
  const LearningRateSchedule rate = make(Curve::kInverseSqrt);
  for (const std::int64_t t : {9, 10, 39, 99, 999}) {
    EXPECT_DOUBLE_EQ(rate.at(t), 2.0 * std::sqrt(10.0 / static_cast<double>(t + 1)));
  }
  EXPECT_DOUBLE_EQ(rate.at(39), 1.0);
  const LearningRateSchedule at_once = make(Curve::kInverseSqrt, {}, 0);
  EXPECT_DOUBLE_EQ(at_once.at(0), 2.0);
  EXPECT_DOUBLE_EQ(at_once.at(3), 1.0);
}

TEST(LearningRate, ATableIsLinearBetweenItsLines) {
  const LearningRateSchedule rate(
      {.curve = Curve::kTable,
       .peak = 2.0,
       .total_steps = 100,
       .warmup = {},
       .decay = {},
       .points = read_learning_rates(
           "# step, part\n0 0\n10\t1 # the peak\n\n 20 1\r\n40 0.25\n41 0.125", "F")});
  EXPECT_EQ(rate.warmup(), 0);
  EXPECT_DOUBLE_EQ(rate.at(0), 0.2);  // the first step
  EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(9), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(15), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(19), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(29), 1.25);
  EXPECT_DOUBLE_EQ(rate.at(39), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(40), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.25);
  const LearningRateSchedule late({.curve = Curve::kTable,
                                   .total_steps = 100,
                                   .warmup = {},
                                   .decay = {},
                                   .points = {{50, 0.5}, {100, 1}}});
  EXPECT_DOUBLE_EQ(late.at(0), 0.5e-3);
  EXPECT_DOUBLE_EQ(late.at(99), 1e-3);
  EXPECT_EQ(message_of<InternalError>([] {
              LearningRateSchedule({.curve = Curve::kTable, .warmup = {}, .decay = {}}).at(0);
            }).find("no error"),
            std::string::npos);
}

TEST(LearningRate, ATableReadsBackFromItsText) {
  const std::vector<LearningRatePoint> points = {
      {0, 0}, {7, 0.1}, {20, 1}, {100'000'000'000, 1e-9}};
  EXPECT_EQ(learning_rates_text(points), "0 0\n7 0.1\n20 1\n100000000000 1e-09\n");
  EXPECT_EQ(read_learning_rates(learning_rates_text(points), "F"), points);
  // What is written otherwise is the same table.
  EXPECT_EQ(learning_rates_text(read_learning_rates("1 1.0 # all\n 20  0.50\n", "F")),
            "1 1\n20 0.5\n");
}

TEST(LearningRate, AFaultyTableIsNamedByItsLine) {
  const auto refusal = [](const char* text) {
    return message_of([&] { read_learning_rates(text, "schedule.file F"); });
  };
  // bad input: `train`: `schedule.file` with a line that is no point | schedule.file FILE, line 3:
  // '20' is not a step and a part of optim.lr, as in 100 0.5; ..., line 2: step 1e3: is not a whole
  // number; ..., line 2: part 3: must be at least 0 and at most 1 | 2
  EXPECT_EQ(refusal("1 1\n\n20\n"),
            "schedule.file F, line 3: '20' is not a step and a part of optim.lr, as in 100 0.5");
  EXPECT_EQ(refusal("1 1 1"),
            "schedule.file F, line 1: '1 1 1' is not a step and a part of optim.lr, as in 100 0.5");
  EXPECT_EQ(refusal("step part\n1 1"), "schedule.file F, line 1: step step: is not a whole number");
  EXPECT_EQ(refusal("0 0\n1e3 1"), "schedule.file F, line 2: step 1e3: is not a whole number");
  EXPECT_EQ(refusal("10ep 1"), "schedule.file F, line 1: step 10ep: is not a whole number");
  EXPECT_EQ(refusal("-1 1"),
            "schedule.file F, line 1: step -1: must be at least 0 and at most 100000000000");
  EXPECT_EQ(refusal("99999999999999999999 1"),
            "schedule.file F, line 1: step 99999999999999999999: is out of range");
  EXPECT_EQ(refusal("1 1\n5 3"),
            "schedule.file F, line 2: part 3: must be at least 0 and at most 1");
  EXPECT_EQ(refusal("1 -0.1"),
            "schedule.file F, line 1: part -0.1: must be at least 0 and at most 1");
  EXPECT_EQ(refusal("1 nan"), "schedule.file F, line 1: part nan: is not a number");
  EXPECT_EQ(refusal("1,1"),
            "schedule.file F, line 1: '1,1' is not a step and a part of optim.lr, as in 100 0.5");
  // bad input: `train`: `schedule.file` with steps that do not rise | schedule.file FILE, line 4:
  // step 10 does not follow step 20 of line 2: steps must rise | 2
  EXPECT_EQ(refusal("1 1\n20 1\n# again\n10 0"),
            "schedule.file F, line 4: step 10 does not follow step 20 of line 2: steps must rise");
  EXPECT_EQ(refusal("1 1\n1 0"),
            "schedule.file F, line 2: step 1 does not follow step 1 of line 1: steps must rise");
  // bad input: `train`: `schedule.file` without a point, or with rates instead of parts of the peak
  // | schedule.file FILE: no line has a step and a part of optim.lr, as in 100 0.5; ...: the
  // largest part is 0.0003, but optim.lr is the peak, so the largest must be 1: ... | 2
  for (const char* text : {"", "# 1 1\n\n"}) {
    EXPECT_EQ(refusal(text),
              "schedule.file F: no line has a step and a part of optim.lr, as in 100 0.5");
  }
  EXPECT_EQ(refusal("1 0.0003\n20 0"),
            "schedule.file F: the largest part is 0.0003, but optim.lr is the peak, so the largest "
            "must be 1: divide all by 0.0003, and give the peak as optim.lr");
  // bad input: `train`: `schedule.file` whose parts are all 0 | schedule.file FILE: no part is
  // above 0, so that nothing would train: the largest must be 1 | 2
  EXPECT_EQ(refusal("1 0\n20 0"),
            "schedule.file F: no part is above 0, so that nothing would train: the largest must be "
            "1");
}

TEST(LearningRate, WarmUpDefaultsToATenthOfTheRunAtMost100) {
  EXPECT_EQ(LearningRateSchedule({.total_steps = 50, .warmup = {}, .decay = {}}).warmup(), 5);
  EXPECT_EQ(LearningRateSchedule({.total_steps = 5000, .warmup = {}, .decay = {}}).warmup(), 100);
  EXPECT_EQ(LearningRateSchedule({.total_steps = 1, .warmup = {}, .decay = {}}).warmup(), 0);
}

TEST(LearningRate, AWarmUpOfTheWholeRunIsPossible) {
  for (const Curve curve :
       {Curve::kConstant, Curve::kLinear, Curve::kCosine, Curve::kStep, Curve::kWsd}) {
    EXPECT_DOUBLE_EQ(make(curve, {}, 100).at(99), 2.0);
  }
}

TEST(LearningRate, WhatDoesNotFitTheRunIsAConfigError) {
  EXPECT_EQ(message_of([] { make(Curve::kLinear, {}, 101); }),
            "schedule.warmup is 101 steps: 0 to run.steps (100) is possible");
  EXPECT_EQ(message_of([] { make(Curve::kLinear, 0); }),
            "schedule.decay is 0 steps: at least 1 is needed");
  EXPECT_EQ(message_of([] { make(Curve::kWsd, 91); }),
            "schedule.decay is 91 steps, but the warm-up leaves 90 of run.steps (100)");
  EXPECT_EQ(message_of([] { make(Curve::kWsd, {}, 0, 0); }),
            "run.steps is 0: at least 1 is needed");
  EXPECT_EQ(message_of([] { with_period(0, 1); }),
            "schedule.period is 0 steps and schedule.period_factor 1: at least 1 is needed");
  EXPECT_EQ(
      message_of([] { learning_rate_curve("cosin"); }),
      "schedule.name is 'cosin': it is one of constant, linear, cosine, cosine_restarts, step, "
      "wsd, inverse_sqrt, table");
  EXPECT_EQ(learning_rate_curve("wsd"), Curve::kWsd);
}

}  // namespace
}  // namespace trireme::optim
