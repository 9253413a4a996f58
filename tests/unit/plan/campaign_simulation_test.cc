// A campaign beside simulated ones.
#include <algorithm>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "trireme/plan/campaign.h"

#include "campaign_inputs.h"

namespace trireme::plan {
namespace {

// What a simulated course of a chain of jobs took.
struct Course {
  double seconds = 0.0;
  int failures = 0, jobs = 0;
};

// Follows the trainer step by step, with failures drawn from `random`. It shares no formula with
// the planner.
class Simulation {
 public:
  Simulation(const CampaignInput& input, std::uint64_t seed)
      : input_(input),
        random_(seed),
        failure_(1.0 / *input.mtbf),
        write_(input.checkpoint_bytes / input.write_rate) {}

  Course run() {
    while (saved_ < input_.goal.steps) {
      if (course_.jobs++ > 0) course_.seconds += input_.queue;
      course_.seconds += job();
    }
    return course_;
  }

 private:
  // Lets time pass, unless a failure comes. Returns whether none did.
  bool passes(double& now, double seconds) {
    const double failure = failure_(random_);
    if (failure >= seconds) {
      now += seconds;
      return true;
    }
    now += failure + input_.notice;
    ++course_.failures;
    return false;
  }

  double job() {
    double now = 0.0;
    while (now < *input_.job_limit && !attempt(now)) continue;
    return std::min(now, *input_.job_limit);
  }

  // One start of the program. Returns whether it ended the job with a checkpoint.
  bool attempt(double& now) {
    const double step = input_.step_seconds.expected, limit = *input_.job_limit;
    if (!passes(now, input_.start + write_)) return false;
    for (std::int64_t done = saved_, in_start = 1;; ++in_start) {
      if (!passes(now, step)) return false;
      ++done;
      const bool last =
          done == input_.goal.steps || now + step + 1.5 * write_ + input_.margin > limit;
      if (!last && in_start % *input_.checkpoint_every.steps != 0) continue;
      if (!passes(now, write_)) return false;
      if (now <= limit) saved_ = done;
      if (last) return true;
    }
  }

  const CampaignInput& input_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> failure_;
  double write_;
  std::int64_t saved_ = 0;
  Course course_;
};

TEST(Campaign, ASimulationOfFailuresAgrees) {
  // From a failure in 33 min to one in a day.
  for (const double mtbf : {2000.0, 7200.0, 86400.0}) {
    const CampaignInput input = failing_input(mtbf);
    const Campaign campaign = plan_campaign(input);
    constexpr int kCourses = 200;
    double seconds = 0.0, failures = 0.0, jobs = 0.0;
    int within = 0;
    for (int i = 0; i < kCourses; ++i) {
      const Course course = Simulation(input, 1000 + static_cast<std::uint64_t>(i)).run();
      seconds += course.seconds / kCourses;
      failures += static_cast<double>(course.failures) / kCourses;
      jobs += static_cast<double>(course.jobs) / kCourses;
      within += course.seconds >= campaign.seconds.low && course.seconds <= campaign.seconds.high;
    }
    EXPECT_NEAR(seconds / campaign.seconds.expected, 1.0, 0.01) << mtbf;
    EXPECT_NEAR(failures / campaign.failures, 1.0, 0.1) << mtbf;
    EXPECT_NEAR(jobs, static_cast<double>(campaign.jobs), 1.0) << mtbf;
    // Nine of ten are meant.
    EXPECT_GE(within, 0.85 * kCourses) << mtbf;
    EXPECT_LE(within, 0.97 * kCourses) << mtbf;
  }
}

}  // namespace
}  // namespace trireme::plan
