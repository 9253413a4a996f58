#include "plan/job_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/plan/checkpoint_interval.h"

namespace trireme::plan {
namespace {

double seconds_of_write(const CampaignInput& input) {
  return input.checkpoint_bytes > 0.0 ? input.checkpoint_bytes / input.write_rate : 0.0;
}

double seconds_of_start(const CampaignInput& input) {
  const double rate = input.read_rate.value_or(input.write_rate);
  return input.start + (input.checkpoint_bytes > 0.0 ? input.checkpoint_bytes / rate : 0.0);
}

double seconds_between_failures(const CampaignInput& input) {
  if (input.node_mtbf) return *input.node_mtbf / input.nodes;
  return input.mtbf.value_or(std::numeric_limits<double>::infinity());
}

void add(ChainPart& to, const ChainPart& part, double times) {
  if (times == 0.0) return;  // the part may be infinite
  to.times.computing += times * part.times.computing;
  to.times.evaluation += times * part.times.evaluation;
  to.times.checkpoints += times * part.times.checkpoints;
  to.times.starts += times * part.times.starts;
  to.times.repeated += times * part.times.repeated;
  to.times.restarts += times * part.times.restarts;
  to.failures += times * part.failures;
  to.checkpoints += times * part.checkpoints;
}

}  // namespace

JobChain::JobChain(const CampaignInput& input, std::int64_t steps, double step)
    : input_(input),
      steps_(steps),
      step_(step),
      write_(seconds_of_write(input)),
      start_(seconds_of_start(input)),
      between_failures_(seconds_between_failures(input)),
      every_(steps_between_checkpoints()),
      steps_of_job_(count_steps_of_job()),
      steps_of_first_(count_steps_of_first()) {}

std::int64_t JobChain::steps_between_checkpoints() const {
  const CheckpointRule& rule = input_.checkpoint_every;
  if (rule.steps) return *rule.steps;
  if (!rule.seconds) return best_steps_between_checkpoints(write_, between_failures_, step_);
  constexpr double kMost = 1e18;
  return std::max<std::int64_t>(1, std::llround(std::min(kMost, *rule.seconds / step_)));
}

std::int64_t JobChain::jobs() const {
  const std::int64_t later = steps_ - steps_of_first_;
  return 1 + later / steps_of_job_ + (later % steps_of_job_ > 0 ? 1 : 0);
}

std::int64_t JobChain::steps_of_last() const {
  const std::int64_t before = jobs() - 1;
  return before == 0 ? steps_ : steps_ - steps_of_first_ - (before - 1) * steps_of_job_;
}

// A failure before the first step costs what a restart does.
void JobChain::add_start(ChainPart& to) const {
  to.times.starts += start_;
  if (!std::isfinite(between_failures_)) return;
  const double failures = std::expm1(start_ / between_failures_);
  to.failures += failures;
  to.times.restarts += (between_failures_ + input_.notice) * failures - start_;
}

// Adds so many times the work up to a checkpoint, with it. Evaluations are spread over all steps.
void JobChain::add_segment(ChainPart& to, std::int64_t steps, double times) const {
  ChainPart part;
  const auto count = static_cast<double>(steps);
  const bool evaluates = input_.evaluate_every > 0;
  part.times.computing = count * step_;
  part.times.evaluation = evaluates ? part.times.computing * input_.evaluation_steps /
                                          static_cast<double>(input_.evaluate_every)
                                    : 0.0;
  part.times.checkpoints = write_;
  part.checkpoints = 1.0;
  if (std::isfinite(between_failures_)) {
    const double m = between_failures_, work = part.times.on_nodes();
    const double failures = std::expm1(work / m);  // of the work itself, not of starts
    part.failures = failures * std::exp(start_ / m);
    part.times.repeated = m * failures - work;
    part.times.restarts = failures * ((m + input_.notice) * std::exp(start_ / m) - m);
  }
  add(to, part, times);
}

ChainPart JobChain::job(std::int64_t steps) const {
  ChainPart part;
  add_start(part);
  if (steps == 0) return part;
  const std::int64_t whole = every_ > 0 ? (steps - 1) / every_ : 0;
  if (whole > 0) add_segment(part, every_, static_cast<double>(whole));
  add_segment(part, steps - whole * every_, 1.0);
  return part;
}

double JobChain::last_job_seconds() const {
  return job(steps_of_last()).times.on_nodes();
}

ChainPart JobChain::all() const {
  const std::int64_t before = jobs() - 1;
  ChainPart part = job(steps_of_last());
  if (before > 0) add(part, job(steps_of_first_), 1.0);
  if (before > 1) add(part, job(steps_of_job_), static_cast<double>(before - 1));
  part.times.queue = static_cast<double>(before) * input_.queue;
  return part;
}

double JobChain::spread() const {
  const ChainPart part = all();
  if (part.failures == 0.0) return 0.0;
  const std::int64_t steps = every_ > 0 ? std::min(every_, steps_of_job_) : steps_of_job_;
  ChainPart segment;
  add_segment(segment, steps, 1.0);
  const double work =
      segment.times.computing + segment.times.evaluation + segment.times.checkpoints;
  const double loss = input_.notice + start_ + work / 2;
  return std::sqrt(part.failures * (loss * loss + work * work / 12));
}

// Seconds of a job until the end of that step, on average.
double JobChain::until_last_checkpoint(std::int64_t steps) const {
  const double all = job(steps).times.on_nodes();
  return steps == 0 ? all : all - write_;
}

// The most steps after which a job is no older than that.
std::int64_t JobChain::most_steps_until(double seconds) const {
  const double end = seconds + 1e-9 * std::abs(seconds);  // what is exact but for rounding fits
  std::int64_t fits = 0, most = steps_;
  while (fits < most) {
    const std::int64_t middle = most - (most - fits) / 2;
    if (until_last_checkpoint(middle) <= end) {
      fits = middle;
    } else {
      most = middle - 1;
    }
  }
  return fits;
}

// The most steps of a job whose start takes a checkpoint for so long.
std::int64_t JobChain::most_steps_by_deadline(double write) const {
  return most_steps_until(*input_.job_limit - kSlowestCheckpoint * write - input_.margin);
}

// What the trainer's Deadline and the signal do.
std::int64_t JobChain::count_steps_of_job() const {
  if (!input_.job_limit) return steps_;
  check_first_step();
  const std::int64_t until_signal =
      input_.grace ? 1 + most_steps_until(*input_.job_limit - *input_.grace) : steps_;
  return std::clamp<std::int64_t>(std::min(most_steps_by_deadline(write_), until_signal), 1,
                                  steps_);
}

// The first start has no checkpoint to know its time by. In the time that it leaves for one of a
// slow disk it may not reach its first.
std::int64_t JobChain::count_steps_of_first() const {
  if (!input_.job_limit) return steps_of_job_;
  const std::int64_t guessed =
      most_steps_by_deadline(guessed_checkpoint_seconds(input_.checkpoint_bytes));
  const bool measures = every_ > 0 && guessed > every_;
  return measures ? steps_of_job_ : std::clamp<std::int64_t>(guessed, 1, steps_of_job_);
}

// A difference of a second or so is not worth a word.
bool JobChain::first_is_shorter() const {
  return static_cast<double>(steps_of_first_) < 0.95 * static_cast<double>(steps_of_job_);
}

// A start makes at least one step and then a checkpoint, however late it is.
void JobChain::check_first_step() const {
  const double limit = *input_.job_limit, most = limit + 1e-9 * limit;
  const auto refuse = [&](const std::string& what, const std::string& instead) {
    throw ConfigError(
        fmt::format("{} for a job's time limit of {}: {}", what, time_text(limit), instead));
  };
  if (step_ > most) {
    refuse(fmt::format("a step of {} is too long", time_text(step_)),
           "more time, more nodes, or a smaller batch");
  }
  if (start_ > most) {
    refuse(
        fmt::format("a start of {}, with reading the checkpoint, is too long", time_text(start_)),
        "more time");
  }
  if (start_ + step_ + write_ > most) {
    refuse(fmt::format("a start of {}, a step of {} and a checkpoint of {} are too long",
                       time_text(start_), time_text(step_), time_text(write_)),
           "more time, or a file system that takes a checkpoint sooner");
  }
  if (!(until_last_checkpoint(1) + write_ <= most)) {
    refuse(fmt::format("a failure every {} comes too often", time_text(between_failures_)),
           "on average a job would end before it keeps a step");
  }
}

}  // namespace trireme::plan
