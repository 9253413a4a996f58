#include "trireme/report/interruption.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/wall_clock.h"
#include "trireme/report/run_events.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

class InterruptionTest : public ::testing::Test {
 protected:
  void metrics(int steps, const std::string& rest = "") {
    std::ofstream file(folder_.path().string() + "/metrics.jsonl");
    for (int step = 1; step <= steps; ++step) {
      file << R"({"step": )" << step << R"(, "loss": 1.0})"
           << "\n";
    }
    file << rest;
  }
  void event(const char* kind, const std::string& detail = "") {
    EventLog(folder_.path().string() + "/events.jsonl").write(1, kind, 0.0, detail);
  }
  std::optional<Interruption> read() { return read_interruption(folder_.path().string()); }

  testing::TemporaryFolder folder_;
};

TEST_F(InterruptionTest, NothingWhereNothingWasDone) {
  EXPECT_FALSE(read());
  metrics(0);
  EXPECT_FALSE(read());
}

TEST_F(InterruptionTest, TheLastWholeLineCountsHoweverLongTheFile) {
  metrics(20000, R"({"step": 20001, "lo)");
  ASSERT_TRUE(read());
  EXPECT_EQ(read()->last_step, 20000);
  EXPECT_NEAR(read()->last_time, unix_seconds(), 60.0);
  EXPECT_FALSE(read()->on_purpose);
}

TEST_F(InterruptionTest, TheLastEventSaysWhy) {
  metrics(3);
  event("start");
  event("checkpoint");
  EXPECT_FALSE(read()->on_purpose);
  EXPECT_EQ(read()->cause, "");
  event("failure", "n3: task 2: Killed");
  EXPECT_FALSE(read()->on_purpose);
  EXPECT_EQ(read()->cause, "n3: task 2: Killed");
  event("requeue", "stopped at step 3, requeued to wait for all of its nodes");
  EXPECT_FALSE(read()->on_purpose);
  EXPECT_EQ(read()->cause, "n3: task 2: Killed");
  event("stop", "by a signal");
  EXPECT_TRUE(read()->on_purpose);
  event("requeue", "stopped at step 3, requeued");
  EXPECT_TRUE(read()->on_purpose);
  event("finish");
  EXPECT_TRUE(read()->on_purpose);
}

TEST(Cost, NamesTheCauseAndCountsTheStepsThatAreRepeated) {
  EXPECT_EQ(
      cost_of({.last_step = 107, .last_time = 0.0, .on_purpose = false, .cause = "n3"}, 100, 14.24),
      "a failure (n3) cost 14.2 s until the next step; 7 steps are repeated");
  EXPECT_EQ(
      cost_of({.last_step = 101, .last_time = 0.0, .on_purpose = false, .cause = ""}, 100, 2.0),
      "a failure cost 2.0 s until the next step; 1 step is repeated");
  EXPECT_EQ(
      cost_of({.last_step = 100, .last_time = 0.0, .on_purpose = true, .cause = ""}, 100, 2.0),
      "a stop cost 2.0 s until the next step; no step is repeated");
}

}  // namespace
}  // namespace trireme
