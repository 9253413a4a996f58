// How long an operation may take, from what steps and checkpoints took.
#include "trireme/setup/hang_limit.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(HangLimit, FollowsTheLongestStepOnceSomeAreMeasured) {
  HangLimit limit;
  EXPECT_EQ(limit.seconds(), 600);
  limit.step_took(0.1);
  limit.step_took(3.0);
  EXPECT_EQ(limit.seconds(), 600);
  limit.step_took(0.2);
  EXPECT_EQ(limit.seconds(), 120);  // 20 x 3 s is less
  limit.step_took(45.0);
  limit.step_took(1.0);
  EXPECT_EQ(limit.seconds(), 900);
}

TEST(HangLimit, WhatTheUserSetStays) {
  HangLimit limit(6.0);
  for (int i = 0; i < 10; ++i) limit.step_took(45.0);
  EXPECT_EQ(limit.seconds(), 6);
}

TEST(HangLimit, ACheckpointHasTheTimeOfItsBytes) {
  HangLimit limit(600.0);
  constexpr std::int64_t kBytes = 120'000'000'000;
  EXPECT_EQ(limit.seconds_with_checkpoint(0), 600);
  EXPECT_EQ(limit.seconds_with_checkpoint(kBytes), 600 + 4 * 2400.0);  // at 50 MB/s
  limit.checkpoint_took(kBytes, 120.0);
  EXPECT_EQ(limit.seconds_with_checkpoint(kBytes), 600 + 4 * 120.0);
  limit.checkpoint_took(kBytes, 480.0);
  limit.checkpoint_took(kBytes, 60.0);
  EXPECT_EQ(limit.seconds_with_checkpoint(kBytes), 600 + 4 * 480.0);
  EXPECT_EQ(limit.seconds(), 600);  // steps are bounded as before
}

}  // namespace
}  // namespace trireme
