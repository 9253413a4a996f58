
#include <gtest/gtest.h>

#include "trireme/base/error.h"
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

TEST(LearningRate, WarmUpRisesToThePeakOnEveryCurve) {
  for (const Curve curve :
       {Curve::kConstant, Curve::kLinear, Curve::kCosine, Curve::kStep, Curve::kWsd}) {
    const LearningRateSchedule rate = make(curve);
    EXPECT_DOUBLE_EQ(rate.at(0), 0.2);
    EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
    EXPECT_DOUBLE_EQ(rate.at(9), 2.0);
    EXPECT_DOUBLE_EQ(rate.at(10), 2.0);
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
  EXPECT_EQ(message_of([] { learning_rate_curve("cosin"); }),
            "schedule.name is 'cosin': it is one of constant, linear, cosine, step, wsd");
  EXPECT_EQ(learning_rate_curve("wsd"), Curve::kWsd);
}

}  // namespace
}  // namespace trireme::optim
