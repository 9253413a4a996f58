#include "train/run_journal.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/base/wall_clock.h"

namespace trireme {

RunJournal::RunJournal(const Setting& setting)
    : narrator_(setting.leads, setting.first_step, setting.total_steps, setting.log_every,
                setting.unit),
      before_report_(setting.before_report) {
  if (!setting.leads) return;
  // A run that has nothing left to do begins no new file of events.
  const bool more = !setting.total_steps || setting.first_step < *setting.total_steps;
  if (setting.goes_on && more) interruption_ = read_interruption(setting.folder);
  events_.emplace(setting.folder + "/events.jsonl");
  if (const auto discarded = discarded_after(setting.folder, setting.first_step)) {
    events_->write(*discarded);
  }
  metrics_.emplace(setting.folder, setting.first_step, setting.unit, setting.tensorboard && more);
  report_.emplace(setting.folder);
}

void RunJournal::started(std::int64_t step, double seconds, const std::string& detail,
                         const std::string& places) {
  if (!events_) return;
  events_->write({.step = step,
                  .kind = "start",
                  .seconds = seconds,
                  .detail = detail,
                  .job = job_times_here(),
                  .places = places});
}

void RunJournal::note(std::int64_t step, std::string_view kind, double seconds,
                      const std::string& detail) {
  if (events_) events_->write(step, kind, seconds, detail);
}

void RunJournal::tell_interruption(const StepMetrics& first) {
  const double seconds = unix_seconds() - interruption_->last_time;
  const std::string cost = cost_of(*interruption_, first.step - 1, seconds);
  if (!interruption_->on_purpose) say(cost);
  note(first.step, "restart", seconds, cost);
  interruption_.reset();
}

// Lines are for observers; the run goes on without them.
void RunJournal::note_output_fault(std::int64_t step) {
  if (standard_output_fault() == 0 || output_fault_noted_) return;
  output_fault_noted_ = true;
  note(step, "output", 0.0,
       fmt::format("standard output cannot be written: {}; the run goes on",
                   std::strerror(standard_output_fault())));
}

void RunJournal::step(const StepMetrics& metrics) {
  if (interruption_) tell_interruption(metrics);
  narrator_.step(metrics);
  note_output_fault(metrics.step);
  if (metrics_) metrics_->write(metrics);
}

void RunJournal::evaluation(const Evaluation& evaluation, const std::string& measures) {
  if (metrics_) metrics_->write(evaluation);
  say(fmt::format("step {}: evaluation {}{} ({:.1f} s)", evaluation.step, measures,
                  evaluation.of_average ? ", of the averaged weights" : "", evaluation.seconds));
  write_report();
}

void RunJournal::checkpoint(std::int64_t step, const std::string& path, double seconds,
                            std::optional<std::int64_t> next) {
  note(step, "checkpoint", seconds, path);
  write_report();
  const std::string then = next ? fmt::format(", the next in about {} steps", *next) : "";
  say(fmt::format("checkpoint {} ({:.1f} s){}", path, seconds, then));
}

void RunJournal::straggler(std::int64_t step, const std::string& what) {
  note(step, "straggler", 0.0, what);
  say("straggler: " + what);
  write_report();
}

void RunJournal::stopped(std::int64_t step, const std::string& why) {
  say(fmt::format("stopped {} after step {}; the same command goes on from there", why, step));
  note_output_fault(step);
  note(step, "stop", 0.0, why);
  write_report(fmt::format("stopped {}, with a checkpoint", why));
  say_goodput();
}

void RunJournal::finished(const StepMetrics& last) {
  narrator_.close(last);
  note_output_fault(last.step);
  note(last.step, "finish", 0.0, "");
  write_report("finished");
  say_goodput();
}

void RunJournal::failed(std::int64_t step, const std::string& why) noexcept {
  try {
    note(step, "failure", 0.0, why);
  } catch (const std::exception&) {
    // No memory. The caller tells what matters.
  }
}

void RunJournal::failed_everywhere(std::int64_t step, const std::string& why) {
  note(step, "failure", 0.0, why);
  write_report("failed: " + why);
}

void RunJournal::say_goodput() {
  if (!report_ || !report_->history()) return;
  const std::string text = goodput_text(report_->history()->goodput());
  if (!text.empty()) say("goodput " + text);
}

void RunJournal::write_report(const std::optional<std::string>& ended) {
  if (!report_) return;
  if (before_report_) before_report_();
  report_->write(ended);
  if (report_->history()) plan_.write(*report_->history());
}

}  // namespace trireme
