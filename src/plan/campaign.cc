#include "trireme/plan/campaign.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

#include "plan/job_chain.h"

namespace trireme::plan {
namespace {

constexpr double kEndless = 1e15;
// A line of metrics.jsonl; those of a small text run have 374 on average.
constexpr double kMetricsBytes = 400.0;

void refuse_unless(bool right, std::string_view what) {
  if (!right) throw ConfigError(std::string(what));
}

// Whether a number can be a duration, rate or size.
bool is_amount(double value) {
  return std::isfinite(value) && value >= 0.0;
}
bool is_above_zero(double value) {
  return is_amount(value) && value > 0.0;
}

void check_steps(const CampaignInput& input) {
  const Estimate& step = input.step_seconds;
  refuse_unless(is_above_zero(step.low) && step.low <= step.expected &&
                    step.expected <= step.high && std::isfinite(step.high),
                "the seconds of a step must be above 0, and its interval must hold them");
  refuse_unless(input.unit == "tokens" || input.unit == "samples", "a step has tokens or samples");
  refuse_unless(is_above_zero(input.units_of_step),
                fmt::format("the {} of a step must be above 0", input.unit));
  refuse_unless(input.nodes >= 1, "a job has at least one node");
  refuse_unless(
      input.evaluate_every >= 0 && is_amount(input.evaluation_steps),
      "the steps between evaluations, and those that one takes as long as, must be 0 or more");
}

void check_jobs(const CampaignInput& input) {
  refuse_unless(!input.job_limit || (is_above_zero(*input.job_limit)),
                "a job's time limit of 0 leaves no time to train: give one above 0, or none");
  refuse_unless(!input.grace || is_amount(*input.grace), "job.grace must be 0 or more seconds");
  refuse_unless(!input.grace || !input.job_limit || *input.grace < *input.job_limit,
                fmt::format("job.grace, {:g} s, must be below the job's time limit, {:g} s",
                            input.grace.value_or(0.0), input.job_limit.value_or(0.0)));
  refuse_unless(
      is_amount(input.margin) && is_amount(input.start) && is_amount(input.queue) &&
          is_amount(input.notice) && std::isfinite(input.begin),
      "the seconds of checkpoint.margin, of a start, of the queue and of noticing a failure must "
      "be 0 or more");
}

void check_checkpoints(const CampaignInput& input) {
  refuse_unless(is_amount(input.checkpoint_bytes), "the bytes of a checkpoint must be 0 or more");
  refuse_unless(
      input.checkpoint_bytes == 0.0 || (is_above_zero(input.write_rate) &&
                                        is_above_zero(input.read_rate.value_or(input.write_rate))),
      "the rate of the file system must be above 0 bytes per second");
  refuse_unless(input.kept_checkpoints >= 1, "checkpoint.keep must be at least 1");
  refuse_unless(
      !(input.mtbf && input.node_mtbf),
      "give the time between failures of the job (checkpoint.mtbf) or of a node, not both");
  refuse_unless(
      is_above_zero(input.mtbf.value_or(1.0)) && is_above_zero(input.node_mtbf.value_or(1.0)),
      "the time between failures must be above 0");
  const CheckpointRule& rule = input.checkpoint_every;
  refuse_unless(!(rule.steps && rule.seconds),
                "checkpoints come after steps or after seconds, not both");
  refuse_unless(
      rule.steps.value_or(0) >= 0 && is_above_zero(rule.seconds.value_or(1.0)),
      "the time between checkpoints must be above 0, or 0 steps: only at the end of jobs");
  refuse_unless(
      rule.steps || rule.seconds || input.mtbf || input.node_mtbf,
      "checkpoint.every = auto needs checkpoint.mtbf: the mean time between failures of the "
      "whole job, in hours, as in --checkpoint.mtbf 24");
}

std::int64_t asked_steps(const CampaignInput& input) {
  const CampaignGoal& goal = input.goal;
  refuse_unless(goal.steps >= 0 && is_amount(goal.units) && is_amount(goal.epochs) &&
                    is_amount(goal.units_of_data),
                fmt::format("steps, {} and epochs must not be negative", input.unit));
  refuse_unless((goal.steps > 0) + (goal.units > 0.0) + (goal.epochs > 0.0) == 1,
                fmt::format("ask for a number of steps, of {}, or of epochs, above 0", input.unit));
  if (goal.steps > 0) return goal.steps;
  refuse_unless(goal.epochs == 0.0 || goal.units_of_data > 0.0,
                fmt::format("an epoch of data without {} is no training", input.unit));
  const double units = goal.units > 0.0 ? goal.units : goal.epochs * goal.units_of_data;
  const double steps = units / input.units_of_step;
  refuse_unless(steps < 9e18,
                fmt::format("{:g} {} are more than 9 10^18 steps", units, input.unit));
  // What is a whole number of steps but for rounding needs no step more.
  const double nearest = std::round(steps);
  const bool whole = std::abs(steps - nearest) <= 1e-12 * steps;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(whole ? nearest : std::ceil(steps)));
}

double whole_seconds(const JobChain& chain) {
  const double seconds = chain.all().times.whole();
  refuse_unless(
      seconds <= kEndless,
      std::isfinite(chain.between_failures())
          ? fmt::format("would not end: more than {:g} s, with a failure every {} and a "
                        "checkpoint every {} steps",
                        kEndless, time_text(chain.between_failures()), chain.checkpoint_every())
          : fmt::format("would not end: more than {:g} s", kEndless));
  return seconds;
}

double seconds_without_failures(CampaignInput input, std::int64_t steps, const JobChain& chain) {
  input.mtbf = input.node_mtbf = std::nullopt;
  input.checkpoint_every = {chain.checkpoint_every(), {}};
  return whole_seconds(JobChain(input, steps, input.step_seconds.expected));
}

// The interval of the step, and that of the failures, which do not depend on each other.
Estimate interval_of(const CampaignInput& input, std::int64_t steps, const JobChain& chain) {
  constexpr double kNineOfTen = 1.6449;  // standard deviations to either side
  const auto with = [&](double step) { return whole_seconds(JobChain(input, steps, step)); };
  const double expected = whole_seconds(chain), spread = kNineOfTen * chain.spread();
  double lucky = spread, unlucky = spread;
  if (input.job_limit && spread > 0.0) {  // it may take a job less or more
    const double last = chain.last_job_seconds(), job = input.queue + chain.start_seconds();
    if (chain.jobs() > 1 && last <= spread) lucky += job;
    if (*input.job_limit - last <= spread) unlucky += job;
  }
  if (spread > 0.0) {
    lucky = std::min(lucky, expected - seconds_without_failures(input, steps, chain));
  }
  return {expected - std::hypot(expected - with(input.step_seconds.low), lucky), expected,
          expected + std::hypot(with(input.step_seconds.high) - expected, unlucky)};
}

void add_disk(const CampaignInput& input, Campaign& campaign) {
  const double metrics = kMetricsBytes * static_cast<double>(campaign.steps);
  const auto with = [&](double checkpoints) {
    return std::min<double>(checkpoints, campaign.checkpoints) * input.checkpoint_bytes + metrics;
  };
  // One is being written, and one is from before steps were skipped.
  campaign.disk = with(input.kept_checkpoints);
  campaign.most_disk = with(input.kept_checkpoints + 2.0);
}

void add_remarks(const CampaignInput& input, const JobChain& chain, Campaign& campaign) {
  const double write = campaign.checkpoint_seconds;
  if (chain.first_is_shorter()) {
    campaign.remarks.push_back(
        fmt::format("the first job takes its first checkpoint for a slow one and keeps time for "
                    "it: it stops after {}, before it has measured one; a shorter "
                    "checkpoint.every mends that",
                    counted(chain.steps_of_first(), "step")));
  }
  if (input.job_limit && input.grace && *input.grace < write + input.step_seconds.expected) {
    campaign.remarks.push_back(
        fmt::format("a step and a checkpoint take {}, but the signal comes {} before the limit: a "
                    "job that cannot learn its end from Slurm would lose its last steps",
                    time_text(write + input.step_seconds.expected), time_text(*input.grace)));
  }
}

}  // namespace

Campaign plan_campaign(const CampaignInput& input) {
  check_steps(input);
  check_jobs(input);
  check_checkpoints(input);
  Campaign campaign;
  campaign.steps = asked_steps(input);
  const JobChain chain(input, campaign.steps, input.step_seconds.expected);
  campaign.seconds = interval_of(input, campaign.steps, chain);
  const ChainPart all = chain.all();
  campaign.jobs = chain.jobs();
  campaign.steps_of_job = chain.steps_of_job();
  campaign.checkpoint_every = chain.checkpoint_every();
  campaign.checkpoint_seconds = chain.checkpoint_seconds();
  campaign.checkpoints = all.checkpoints;
  campaign.failures = all.failures;
  if (std::isfinite(chain.between_failures())) campaign.mtbf = chain.between_failures();
  campaign.times = all.times;
  const Estimate& seconds = campaign.seconds;
  campaign.end = {input.begin + seconds.low, input.begin + seconds.expected,
                  input.begin + seconds.high};
  campaign.goodput = all.times.computing / all.times.whole();
  campaign.node_hours = input.nodes * all.times.on_nodes() / 3600.0;
  campaign.node_hours_per_billion =
      campaign.node_hours * 1e9 / (static_cast<double>(campaign.steps) * input.units_of_step);
  add_disk(input, campaign);
  add_remarks(input, chain, campaign);
  return campaign;
}

}  // namespace trireme::plan
