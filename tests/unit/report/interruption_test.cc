#include "trireme/report/interruption.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/wall_clock.h"
#include "trireme/report/goodput.h"
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

TEST_F(InterruptionTest, WhatCannotBeReadIsNotTakenForNone) {
  const std::string folder = folder_.path().string();
  const auto refusal = [](const auto& read) -> std::string {
    try {
      read();
    } catch (const RunFolderError& error) {
      return error.what();
    }
    return "none";
  };
  metrics(3);
  event("start");
  std::filesystem::remove(folder + "/events.jsonl");
  std::filesystem::create_directory(folder + "/events.jsonl");
  const std::string events = folder + "/events.jsonl: cannot be read: Is a directory";
  EXPECT_EQ(refusal([&] { read(); }), events);
  EXPECT_EQ(refusal([&] { discarded_after(folder, 1); }), events);
  // Events serve observers: the run goes on, and tells it once.
  EventLog log(folder + "/events.jsonl");
  ::testing::internal::CaptureStderr();
  log.write(1, "start", 0.0, "");
  log.write(2, "stop", 0.0, "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "trireme: " + events + "; the run goes on without it\n");
  std::filesystem::remove(folder + "/metrics.jsonl");
  std::filesystem::create_symlink("metrics.jsonl", folder + "/metrics.jsonl");
  const std::string loop =
      folder + "/metrics.jsonl: cannot be read: Too many levels of symbolic links";
  EXPECT_EQ(refusal([&] { read(); }), loop);
  EXPECT_EQ(refusal([&] { discarded_after(folder, 1); }), loop);
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

// The start that reads this has begun a branch already.
TEST_F(InterruptionTest, ABranchIsNotHowTheRunEnded) {
  metrics(3);
  event("stop");
  event("branch", "a new branch begins");
  ASSERT_TRUE(read());
  EXPECT_TRUE(read()->on_purpose);
}

TEST_F(InterruptionTest, HalfALineSpoilsNoEventBehindIt) {
  event("start");
  std::ofstream(folder_.path().string() + "/events.jsonl", std::ios::app) << R"({"time": 17, "ste)";
  event("branch", "a new branch begins");
  const std::vector<RunEvent> events = read_events(folder_.path().string() + "/events.jsonl");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, "branch");
}

TEST(RunEvents, ThoseOfAnotherBranchEndWhereItWasLeft) {
  const std::vector<RunEvent> events = {
      {1, 0, "start", 0.0, ""},   {2, 20, "checkpoint", 0.0, ""}, {3, 40, "checkpoint", 0.0, ""},
      {4, 20, "branch", 0.0, ""}, {5, 20, "start", 0.0, ""},      {6, 30, "checkpoint", 0.0, ""}};
  std::vector<std::int64_t> times;
  for (const RunEvent& event : events_of_branch(events)) times.push_back(event.time);
  EXPECT_EQ(times, (std::vector<std::int64_t>{1, 2, 4, 5, 6}));
}

}  // namespace
}  // namespace trireme
