#include "train/narrator.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// What the narrator of a log prints of steps that take so long.
std::string log_of(int steps, std::int64_t every, double seconds) {
  ::testing::internal::CaptureStdout();
  Narrator narrator(true, 0, 100, every, {"token", "tokens"});
  for (int i = 1; i <= steps; ++i) {
    StepMetrics metrics;
    metrics.step = i;
    metrics.step_seconds = seconds;
    narrator.step(metrics);
  }
  return ::testing::internal::GetCapturedStdout();
}

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Narrator, ALogHasALineEverySoManySteps) {
  EXPECT_EQ(lines_in(log_of(25, 10, 1.0)), 2);
  EXPECT_EQ(log_of(10, 10, 1.0).find("step  10/100"), 0u);
}

TEST(Narrator, ALogOfLongStepsHasALineAMinute) {
  EXPECT_EQ(lines_in(log_of(5, 1000, 59.0)), 2);   // steps 2 and 4
  EXPECT_EQ(lines_in(log_of(5, 1000, 300.0)), 5);  // no step is told later than it is done
  EXPECT_EQ(lines_in(log_of(5, 2, 60.0)), 5);
}

}  // namespace
}  // namespace trireme
