// Where the whole time of scripted runs went: every category, and that they sum to the whole.
#include "trireme/report/goodput.h"

#include <fstream>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/report/metrics_log.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

using enum TimeUse;

// A run folder's records, in the words of those who write them.
class Script {
 public:
  // A start whose process began `seconds` before its first step, which begins at `time`.
  Script& start(double time, std::int64_t step, double seconds, JobTimes job = {}) {
    events.push_back(
        {.time = time, .step = step, .kind = "start", .seconds = seconds, .job = std::move(job)});
    return *this;
  }
  // Steps first to last of 8 s, of which 1 s is exposed communication and 2 s wait for data; the
  // first one begins at `time`, and they follow each other every 10 s.
  Script& train(double time, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.step_seconds = 8.0;
      metrics.exposed_comm_seconds = 1.0;
      metrics.wait_data_seconds = 2.0;
      metrics.time = time + 10.0 * static_cast<double>(step - first) + 8.0;
      steps.push_back(metrics);
    }
    return *this;
  }
  Script& event(double time, const char* kind, double seconds = 0.0, JobTimes job = {}) {
    events.push_back({.time = time, .kind = kind, .seconds = seconds, .job = std::move(job)});
    return *this;
  }
  // What a start after `step` removes.
  Script& discard(double time, std::int64_t step, double seconds, double until) {
    events.push_back(
        {.time = time, .step = step, .kind = "discard", .seconds = seconds, .until = until});
    return *this;
  }
  Goodput goodput(std::optional<double> alive = {}, bool running = false) const {
    return goodput_of({.steps = steps,
                       .evaluations = evaluations,
                       .events = events,
                       .alive = alive,
                       .running = running});
  }

  std::vector<StepMetrics> steps;
  std::vector<Evaluation> evaluations;
  std::vector<RunEvent> events;
};

// The categories that are not named are 0.
void expect(const Goodput& goodput, double whole,
            const std::vector<std::pair<TimeUse, double>>& seconds) {
  std::array<double, kTimeUses> expected{};
  for (const auto& [use, value] : seconds) expected[static_cast<std::size_t>(use)] = value;
  for (std::size_t i = 0; i < kTimeUses; ++i) {
    EXPECT_NEAR(goodput.seconds[i], expected[i], 1e-6) << name_of(static_cast<TimeUse>(i));
  }
  EXPECT_NEAR(goodput.whole, whole, 1e-6);
  EXPECT_NEAR(std::accumulate(goodput.seconds.begin(), goodput.seconds.end(), 0.0), goodput.whole,
              1e-6);
}

TEST(Goodput, NothingIsKnownWithoutAStart) {
  expect(Script().goodput(), 0.0, {});
  EXPECT_EQ(goodput_text(Script().goodput()), "");
  expect(Script().train(1000, 1, 3).discard(1050, 0, 8.0, 1040.0).goodput(1100, true), 0.0, {});
}

TEST(Goodput, AFinishedRunOutsideAJob) {
  Script run;
  run.start(1000, 0, 20).train(1000, 1, 10);
  run.evaluations.push_back({.step = 10, .loss = 2.0, .seconds = 5.0, .time = 1105.0});
  run.event(1112, "checkpoint", 6.0).event(1113, "finish");
  const Goodput goodput = run.goodput();
  expect(goodput, 133.0,
         {{kStarting, 20},
          {kComputation, 50},
          {kCommunication, 10},
          {kData, 20},
          {kEvaluation, 5},
          {kCheckpoint, 6},
          {kOther, 22}});
  EXPECT_NEAR(goodput.share(), 80.0 / 133.0, 1e-9);
  EXPECT_EQ(goodput_text(goodput),
            "60.2 % of 2 min 13 s; other 22 s, starting 20 s, checkpoints 6 s, evaluation 5 s");
}

TEST(Goodput, ARunThatGoesOnIsCountedUntilNow) {
  const Script run = Script().start(1000, 0, 20).train(1000, 1, 2);
  expect(run.goodput(1025, true), 45.0,
         {{kStarting, 20}, {kComputation, 10}, {kCommunication, 2}, {kData, 4}, {kOther, 9}});
  // Its process is gone: since its last step it did nothing.
  expect(run.goodput(1030, false), 50.0,
         {{kStarting, 20},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kFailure, 12},
          {kOther, 2}});
}

// Killed at step 14 after a checkpoint at step 10; the next start repeats four steps.
TEST(Goodput, AKilledRunRepeatsSteps) {
  Script run;
  run.start(1000, 0, 20).event(1100, "checkpoint", 2.0);
  run.event(1150, "failure");  // by the job script; the last step ended at 1138
  run.discard(1178, 10, 32.0, 1138.0).start(1180, 10, 25);
  run.train(1000, 1, 10).train(1180, 11, 20).event(1280, "finish");
  expect(run.goodput(), 300.0,
         {{kStarting, 45},
          {kComputation, 100},
          {kCommunication, 20},
          {kData, 40},
          {kCheckpoint, 2},
          {kNotKept, 32},
          {kFailure, 12},
          {kBetween, 5},
          {kOther, 44}});
}

TEST(Goodput, WithoutAnEventOfTheFailureItLastsUntilTheNextStart) {
  Script run;
  run.start(1000, 0, 20).train(1000, 1, 2).start(1100, 2, 30).train(1100, 3, 4);
  run.event(1118, "finish");
  expect(run.goodput(), 138.0,
         {{kStarting, 50},
          {kComputation, 20},
          {kCommunication, 4},
          {kData, 8},
          {kFailure, 52},
          {kOther, 4}});
}

TEST(Goodput, ARequeuedRunWaitsInTheQueue) {
  const JobTimes first{"7", 500, 900}, second{"7", 1130, 1400};
  Script run;
  run.start(1000, 0, 20, first).train(1000, 1, 10).event(1110, "checkpoint", 5.0);
  run.event(1112, "stop").event(1120, "requeue");
  run.start(1450, 10, 20, second).train(1450, 11, 12).event(1470, "finish");
  expect(run.goodput(), 970.0,
         {{kQueue, 400 + 270},
          {kStarting, 80 + 20 + 30 + 20},
          {kComputation, 60},
          {kCommunication, 12},
          {kData, 24},
          {kCheckpoint, 5},
          {kBetween, 10},  // from the requeue until Slurm has queued it
          {kOther, 39}});
  EXPECT_TRUE(run.goodput().queue_known);
}

// The second of two jobs was queued while the first one still trained: only what came after counts.
TEST(Goodput, AChainOfJobs) {
  const JobTimes first{"7", 1000, 1000}, second{"8", 1000, 1300};
  Script run;
  run.start(1020, 0, 20, first).train(1020, 1, 10).event(1120, "stop");
  run.start(1310, 10, 10, second).train(1310, 11, 12).event(1330, "finish");
  expect(run.goodput(), 330.0,
         {{kQueue, 180},
          {kStarting, 30},
          {kComputation, 60},
          {kCommunication, 12},
          {kData, 24},
          {kOther, 24}});
}

TEST(Goodput, AJobThatDoesNotSayHowLongItWasQueued) {
  const JobTimes first{"7", {}, 980}, second{"8", {}, {}};
  Script run;
  run.start(1000, 0, 10, first).train(1000, 1, 1).event(1010, "stop");
  run.start(1100, 1, 10, second).train(1100, 2, 2).event(1110, "stop");
  const Goodput goodput = run.goodput();
  EXPECT_FALSE(goodput.queue_known);
  expect(goodput, 130.0,
         {{kStarting, 30},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kBetween, 80},
          {kOther, 4}});
  EXPECT_TRUE(goodput_text(goodput).ends_with("; the time in the queue is not known"));
}

// The second start of a job failed before its first record, and was repeated: two failures.
TEST(Goodput, AFailureAtStart) {
  const JobTimes job{"7", 900, 950};
  Script run;
  run.start(1000, 0, 20, job).train(1000, 1, 2);  // until 1018
  run.event(1020, "failure", 0.0, job).event(1060, "failure", 0.0, job);
  run.start(1100, 2, 10, job).train(1100, 3, 3).event(1110, "finish");
  expect(run.goodput(), 210.0,
         {{kQueue, 50},
          {kStarting, 30 + 20 + 40},
          {kComputation, 15},
          {kCommunication, 3},
          {kData, 6},
          {kFailure, 2 + 40},
          {kOther, 4}});
}

TEST(Goodput, AFailedStartOfARequeuedJobWasQueuedBefore) {
  const JobTimes first{"7", 1000, 1000}, second{"7", 1030, 1130}, third{"7", 1150, 1170};
  Script run;
  run.start(1010, 0, 10, first).train(1010, 1, 1).event(1020, "stop").event(1030, "requeue");
  run.event(1140, "failure", 0.0, second).event(1150, "requeue");
  run.start(1180, 1, 10, third).train(1180, 2, 2).event(1190, "finish");
  expect(run.goodput(), 190.0,
         {{kQueue, 120},
          {kStarting, 20},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kFailure, 10},
          {kOther, 24}});
}

// Slurm puts a job back in its queue when a node fails: that is when the failed start ended.
TEST(Goodput, ARequeueBySlurmEndsTheFailedStart) {
  const JobTimes first{"7", 1000, 1000}, second{"7", 1100, 1200};
  Script run;
  run.start(1010, 0, 10, first).train(1010, 1, 1);
  run.start(1210, 1, 10, second).train(1210, 2, 2).event(1218, "finish");
  expect(run.goodput(), 218.0,
         {{kQueue, 100},
          {kStarting, 20},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kFailure, 82}});
}

// A new branch leaves all steps behind, those of several starts.
TEST(Goodput, ASupersededBranch) {
  Script run;
  run.start(1000, 0, 10).event(1100, "stop").start(1200, 10, 10).event(1300, "stop");
  run.discard(1390, 0, 160.0, 1298.0).event(1391, "branch").start(1400, 0, 10);
  run.train(1400, 1, 2).event(1418, "finish");
  // The 180 s until a person went on with it count for nothing.
  expect(run.goodput(), 248.0,
         {{kStarting, 30},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kNotKept, 160},
          {kOther, 42}});
}

TEST(Goodput, StepsThatAreDiscardedTwiceCountOnce) {
  Script run;
  run.start(1000, 0, 10);
  run.discard(1200, 10, 32.0, 1138.0);  // and was killed before it did so
  run.discard(1220, 5, 72.0, 1138.0).start(1230, 5, 10).train(1230, 6, 7).event(1250, "finish");
  const Goodput goodput = run.goodput();
  expect(goodput, 260.0,
         {{kStarting, 20},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kNotKept, 72},
          {kFailure, 82},
          {kOther, 70}});
}

TEST(Goodput, AClockThatStepsBackMakesNothingNegative) {
  Script run;
  run.start(10000, 0, 20).train(10000, 1, 10).event(10100, "stop");
  run.start(5000, 10, 20).train(5000, 11, 20).event(5100, "finish");
  expect(run.goodput(), 200.0,
         {{kStarting, 40}, {kComputation, 100}, {kCommunication, 20}, {kData, 40}});
  expect(run.goodput(1.0, true), 200.0,
         {{kStarting, 40}, {kComputation, 100}, {kCommunication, 20}, {kData, 40}});
}

// Its lines have no times, and nobody knows when its last step was.
TEST(Goodput, OfAnEarlierVersionNoFailureIsGuessed) {
  Script run;
  run.start(1000, 0, 20).train(1000, 1, 4).start(1100, 4, 20);
  for (StepMetrics& step : run.steps) step.time = 0.0;
  run.train(1100, 5, 5).event(1110, "finish");
  expect(run.goodput(), 130.0,
         {{kStarting, 40}, {kComputation, 25}, {kCommunication, 5}, {kData, 10}, {kOther, 50}});
}

TEST(Goodput, AFailureThatARunOutlivedIsNone) {
  Script run;
  run.start(1000, 0, 20).train(1000, 1, 2).event(1010, "failure").event(1020, "checkpoint", 2.0);
  run.event(1021, "finish");
  expect(run.goodput(), 41.0,
         {{kStarting, 20},
          {kComputation, 10},
          {kCommunication, 2},
          {kData, 4},
          {kCheckpoint, 2},
          {kOther, 3}});
}

TEST(Goodput, WhatAStartRemovesIsToldOnce) {
  testing::TemporaryFolder scratch;
  const std::string folder = scratch.path().string();
  EXPECT_FALSE(discarded_after(folder, 0));
  {
    MetricsLog log(folder, 0, {}, false);
    for (int step = 1; step <= 7; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.step_seconds = 2.0;
      log.write(metrics);
    }
    log.write(Evaluation{.step = 7, .loss = 2.5, .seconds = 0.5});
  }
  EXPECT_FALSE(discarded_after(folder, 7));
  EXPECT_EQ(discarded_after(folder, 6)->detail, "step 7 is not kept");
  const std::optional<RunEvent> told = discarded_after(folder, 4);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->detail, "steps 5 to 7 are not kept");
  EXPECT_EQ(told->step, 4);
  EXPECT_EQ(told->seconds, 6.5);
  EXPECT_GT(told->until, 1e9);
  EventLog(folder + "/events.jsonl").write(*told);
  EXPECT_FALSE(discarded_after(folder, 4));
  EXPECT_TRUE(discarded_after(folder, 2));
  const std::vector<RunEvent> events = read_events(folder + "/events.jsonl");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].seconds, 6.5);
  EXPECT_EQ(events[0].until, told->until);
}

// The same, where an earlier version did the steps: nothing tells when, and no failure is guessed.
TEST(Goodput, StepsWithoutTimesThatAreDiscardedTwiceCountOnce) {
  Script run;
  run.start(1000, 0, 10).discard(2000, 5, 300.0, 0.0);
  run.discard(2001, 5, 300.0, 0.0).discard(2002, 4, 310.0, 0.0);
  run.start(2010, 4, 10).event(2020, "finish");
  expect(run.goodput(), 1030.0, {{kStarting, 20}, {kNotKept, 610}, {kOther, 400}});
}

// The next job was queued while the last one still ran, and was killed without a record.
TEST(Goodput, AJobThatWaitsForAnotherIsQueuedWhenThatOneIsKilled) {
  Script run;
  run.start(1000, 0, 20, {"1", 900.0, 970.0}).train(1000, 1, 10);  // until 1098
  run.start(5000, 10, 20, {"2", 950.0, 4970.0}).event(5010, "finish");
  const Goodput goodput = run.goodput();
  EXPECT_EQ(goodput.of(kFailure), 0.0);
  EXPECT_NEAR(goodput.of(kQueue), 70.0 + (4970.0 - 1098.0), 1e-6);
}

// The job was requeued, and its next start holds the folder but has not begun its first step.
TEST(Goodput, WhatCameBeforeAStartThatIsUnderWay) {
  Script run;
  run.start(1000, 0, 20).event(1010, "stop").event(1012, "requeue");
  expect(run.goodput(5000, true), 4020.0, {{kStarting, 20}, {kOther, 12}, {kBetween, 3988}});
}

TEST(RunEvents, AStartSaysWhenItsJobWasSubmitted) {
  testing::TemporaryFolder scratch;
  const std::string path = scratch.path().string() + "/events.jsonl";
  ::setenv("SLURM_JOB_ID", "7", 1);
  ::setenv("TRIREME_JOB_SUBMITTED", "1000", 1);
  ::setenv("TRIREME_JOB_STARTED", "2000", 1);
  EventLog(path).write({.kind = "start", .job = job_times_here()});
  ::setenv("TRIREME_JOB_SUBMITTED", "soon", 1);
  ::setenv("TRIREME_JOB_STARTED", "", 1);
  ::setenv("SLURM_JOB_START_TIME", "1500", 1);  // perhaps of another run
  EventLog(path).write({.kind = "start", .job = job_times_here()});
  // A job that was submitted in one of a template has that one's times in its environment.
  ::setenv("TRIREME_JOB_SUBMITTED", "1000", 1);
  ::setenv("TRIREME_JOB_OF", "7", 1);
  EXPECT_EQ(job_times_here().submitted, 1000.0);
  ::setenv("SLURM_JOB_ID", "8", 1);
  EXPECT_EQ(job_times_here().job, "8");
  EXPECT_EQ(job_times_here().submitted, std::nullopt);
  ::unsetenv("TRIREME_JOB_OF");
  ::unsetenv("SLURM_JOB_ID");
  EventLog(path).write({.kind = "start", .job = job_times_here()});
  const std::vector<RunEvent> events = read_events(path);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].job.job, "7");
  EXPECT_EQ(events[0].job.submitted, 1000.0);
  EXPECT_EQ(events[0].job.started, 2000.0);
  EXPECT_EQ(events[1].job.job, "7");
  EXPECT_FALSE(events[1].job.submitted);
  EXPECT_FALSE(events[1].job.started);
  EXPECT_EQ(events[2].job.job, "");
}

}  // namespace
}  // namespace trireme
