#include "trireme/train/checkpoint_cadence.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Seconds lost in each second of computation: writing, and, half an interval and a half-written
// checkpoint on average, what a failure undoes. To first order, which is enough for rare failures.
double lost(double interval, double write, double between_failures) {
  return write / interval + (interval + write) / (2 * between_failures);
}

TEST(CheckpointInterval, LosesLessThanShorterAndLongerOnes) {
  for (const double write : {0.1, 5.0, 60.0}) {
    const double failures = 86400.0, best = best_checkpoint_interval(write, failures);
    EXPECT_LT(lost(best, write, failures), lost(best / 1.5, write, failures));
    EXPECT_LT(lost(best, write, failures), lost(best * 1.5, write, failures));
    // Young's first term; Daly's further ones are small here.
    EXPECT_NEAR(best, std::sqrt(2 * write * failures), 1.1 * write);
  }
}

TEST(CheckpointInterval, AgreesWithDalysFormula) {
  // sqrt(2 * 300 * 3600) * (1 + sqrt(300 / 7200) / 3 + 300 / 7200 / 9) - 300
  EXPECT_NEAR(best_checkpoint_interval(300.0, 3600.0), 1276.498, 0.001);
  // Where writing takes longer than two failures are apart.
  EXPECT_EQ(best_checkpoint_interval(100.0, 50.0), 50.0);
}

TEST(CheckpointCadence, AFixedNumberOfStepsCountsFromTheBeginningOfTheRun) {
  CheckpointCadence cadence(5, 0.0, 1.0, 13);
  EXPECT_FALSE(cadence.steps_between());
  EXPECT_FALSE(cadence.due());
  EXPECT_TRUE(cadence.due(2));
  cadence.step_took(1.0);
  EXPECT_FALSE(cadence.due());
  cadence.step_took(1.0);
  EXPECT_TRUE(cadence.due());
  CheckpointCadence never(0, 0.0, 1.0, 0);
  never.step_took(1.0);
  EXPECT_FALSE(never.due());
}

TEST(CheckpointCadence, FollowsTheMeasuredTimes) {
  // The guess of 2 s gives sqrt(2 * 2 * 10000) = 200 s and a little.
  CheckpointCadence cadence(std::nullopt, 10000.0, 2.0, 7);
  int steps = 0;
  const auto until_due = [&] {
    for (steps = 0; steps == 0 || !cadence.due(); ++steps) cadence.step_took(10.0);
    return steps;
  };
  EXPECT_EQ(until_due(), 20);
  EXPECT_EQ(cadence.steps_between(), 20);
  // A checkpoint takes a hundredth of that: a tenth of the steps.
  cadence.checkpoint_took(0.02);
  EXPECT_EQ(cadence.steps_between(), 2);
  EXPECT_FALSE(cadence.due());
  EXPECT_TRUE(cadence.due(2));
  EXPECT_EQ(until_due(), 2);
  // Longer than the time between failures: at each of them, never less than a step apart.
  cadence.checkpoint_took(1e6);
  EXPECT_EQ(cadence.steps_between(), 1000);
  cadence.checkpoint_took(1e-9);
  EXPECT_EQ(cadence.steps_between(), 1);
}

}  // namespace
}  // namespace trireme
