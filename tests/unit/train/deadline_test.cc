#include "trireme/train/deadline.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "trireme/plan/checkpoint_interval.h"
#include "trireme/train/signals.h"

namespace trireme {
namespace {

constexpr double kEnd = 10'000.0;
constexpr double kMargin = 30.0;
constexpr double kFactor = kSlowestCheckpoint;

// The last moment at which another step is begun, found by asking.
double last_moment(Deadline& deadline, const Deadline::Ahead& ahead = {}) {
  double begin = 0.0, end = kEnd;
  EXPECT_FALSE(deadline.wants_stop(begin, ahead));
  EXPECT_TRUE(deadline.wants_stop(end, ahead));
  while (end - begin > 1e-3) {
    const double middle = (begin + end) / 2;
    (deadline.wants_stop(middle, ahead) ? end : begin) = middle;
  }
  return begin;
}

TEST(Deadline, WithoutAnEndNothingStops) {
  Deadline deadline(std::nullopt, 1e9, kMargin);
  deadline.step_took(1e9);
  EXPECT_FALSE(deadline.wants_stop(1e18, {.evaluations = 2, .checkpoint = true}));
}

TEST(Deadline, LeavesTimeForTwoStepsAndACheckpoint) {
  Deadline deadline(kEnd, 40.0, kMargin);
  EXPECT_NEAR(last_moment(deadline), kEnd - kMargin - kFactor * 40, 0.01);
  deadline.step_took(7.0);
  EXPECT_NEAR(last_moment(deadline), kEnd - kMargin - kFactor * 40 - 14, 0.01);
  // A measurement replaces the guess, also where it is the smaller one.
  deadline.checkpoint_took(4.0);
  EXPECT_NEAR(last_moment(deadline), kEnd - kMargin - kFactor * 4 - 14, 0.01);
}

TEST(Deadline, CountsTheLongestOfEach) {
  Deadline deadline(kEnd, 0.0, kMargin);
  for (const double seconds : {2.0, 5.0, 3.0}) deadline.step_took(seconds);
  for (const double seconds : {20.0, 50.0, 30.0}) deadline.evaluation_took(seconds);
  for (const double seconds : {200.0, 500.0, 300.0}) deadline.checkpoint_took(seconds);
  EXPECT_NEAR(last_moment(deadline), kEnd - kMargin - 10 - kFactor * 500, 0.01);
  EXPECT_NEAR(last_moment(deadline, {.evaluations = 1}), kEnd - kMargin - 60 - kFactor * 500, 0.01);
  EXPECT_NEAR(last_moment(deadline, {.evaluations = 2, .checkpoint = true}),
              kEnd - kMargin - 110 - 2 * kFactor * 500, 0.01);
}

TEST(StopSignals, TheLineSaysWhoUsuallySendsIt) {
  EXPECT_EQ(words_on_sender(SIGUSR1), "by SIGUSR1 (as before a job's time limit)");
  EXPECT_EQ(words_on_sender(0), "by a signal");
  for (const int number : stop_signals()) EXPECT_NE(words_on_sender(number), "by a signal");
}

TEST(StopSignals, TheLineSaysWhenTheRunStops) {
  EXPECT_EQ(words_on_stop("SIGTERM", 49.6), "SIGTERM: stops after this step, about 50 s");
  EXPECT_EQ(words_on_stop("SIGUSR2", -3.0), "SIGUSR2: stops after this step");
  EXPECT_EQ(words_on_stop("SIGINT", 2.0),
            "SIGINT: stops after this step, about 2 s; a second one ends the run at once");
}

// The end is moved back, as after `scontrol suspend` and `scontrol update TimeLimit`.
TEST(Deadline, AnEndThatWasMovedBackIsAskedFor) {
  int asked = 0;
  std::optional<double> end_now = 2 * kEnd;
  Deadline deadline(kEnd, 0.0, kMargin, [&] {
    ++asked;
    return end_now;
  });
  EXPECT_FALSE(deadline.wants_stop(kEnd - kMargin - 1, {}));
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(deadline.wants_stop(kEnd + 1, {}));
  EXPECT_FALSE(deadline.wants_stop(2 * kEnd - kMargin - 1, {}));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(deadline.wants_stop(2 * kEnd, {}));  // the same end as before
  end_now = std::nullopt;                          // nobody answers
  EXPECT_TRUE(deadline.wants_stop(2 * kEnd, {}));
  EXPECT_EQ(asked, 3);
}

// Asked at every step, with durations up to the longest, the run always ends in time.
TEST(Deadline, TheCheckpointIsThereBeforeTheEnd) {
  Deadline deadline(kEnd, 1.0, kMargin);
  double now = 0.0;
  deadline.step_took(9.0);
  deadline.evaluation_took(33.0);
  deadline.checkpoint_took(21.0);
  for (int step = 1;; ++step) {
    const bool evaluates = step % 10 == 0;
    const bool saves = step % 7 == 0;
    const bool stop = deadline.wants_stop(
        now, {.evaluations = evaluates + ((step + 1) % 10 == 0), .checkpoint = saves});
    now += 9.0 + (evaluates ? 33.0 : 0.0);
    if (stop) break;
    now += saves ? 21.0 : 0.0;
  }
  now += kFactor * 21.0;
  EXPECT_LE(now, kEnd - kMargin);
  EXPECT_GT(now, kEnd - 200);  // and not long before it
}

TEST(Deadline, ReadsTheTimesOfSqueue) {
  setenv("TZ", "UTC0", 1);
  tzset();
  EXPECT_EQ(parse_end_time("2024-05-31T17:04:09"), 1717175049.0);
  setenv("TZ", "XYZ-2", 1);  // two hours east of Greenwich
  tzset();
  EXPECT_EQ(parse_end_time("2024-05-31T17:04:09"), 1717175049.0 - 7200);
  for (const char* text : {"", "NONE", "N/A", "Unknown", "2024-05-31", "2024-05-31T17:04:09x"}) {
    EXPECT_EQ(parse_end_time(text), std::nullopt) << text;
  }
}

TEST(Deadline, TheEnvironmentComesFirst) {
  setenv("PATH", "/nowhere", 1);  // no squeue answers
  unsetenv("SLURM_JOB_ID");
  setenv("SLURM_JOB_END_TIME", "1717175049", 1);
  EXPECT_EQ(job_end_time(), std::nullopt);  // not in a job
  setenv("SLURM_JOB_ID", "12", 1);
  EXPECT_EQ(job_end_time(), 1717175049.0);
  setenv("SLURM_JOB_END_TIME", "soon", 1);
  EXPECT_EQ(job_end_time(), std::nullopt);
}

}  // namespace
}  // namespace trireme
