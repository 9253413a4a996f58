// What a run reports about itself: lines for the user, metrics.jsonl, events.jsonl and report.html.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/report/interruption.h"
#include "trireme/report/metrics_log.h"
#include "trireme/report/run_events.h"
#include "trireme/report/run_report.h"
#include "trireme/report/step_metrics.h"

#include "train/narrator.h"
#include "train/plan_record.h"

namespace trireme {

// Every rank has one; only the leading rank prints and writes anything. The run ends if metrics
// cannot be written (RunFolderError), but not if events or the report cannot, since these only
// serve observers.
class RunJournal {
 public:
  struct Setting {
    bool leads = false;
    std::string folder;
    std::int64_t first_step = 0;                   // already done
    std::optional<std::int64_t> total_steps = {};  // nothing: not known
    std::int64_t log_every = 1;
    bool tensorboard = false;
    tasks::Unit unit = {};  // of progress
    bool goes_on = true;    // continues the folder's branch, if it holds a run
    // Called on the leading rank before the report is written, to renew what it shows.
    std::function<void()> before_report = {};
  };
  explicit RunJournal(const Setting& setting);

  void say(const std::string& line) { narrator_.say(line); }
  // Records that the first step begins. `seconds` is the time since the process's start; `places`
  // says which places of the grid are on which node.
  void started(std::int64_t step, double seconds, const std::string& detail,
               const std::string& places);
  // Records an event other than a step. `seconds` is its duration; 0: an instant.
  void note(std::int64_t step, std::string_view kind, double seconds, const std::string& detail);

  void step(const StepMetrics& metrics);
  // `measures` is what the task says of it (tasks::Task::measures).
  void evaluation(const Evaluation& evaluation, const std::string& measures);
  // `next` is the number of steps until the next checkpoint, if it follows from measured times.
  void checkpoint(std::int64_t step, const std::string& path, double seconds,
                  std::optional<std::int64_t> next);
  void straggler(std::int64_t step, const std::string& what);
  void stopped(std::int64_t step, const std::string& why);  // on purpose, after a checkpoint
  void finished(const StepMetrics& last);
  // Record that the run ends by an error, which the caller tells. failed() takes no longer than an
  // event does: the other ranks may be waiting to hear whether they all have the same error.
  // failed_everywhere() also writes the report.
  void failed(std::int64_t step, const std::string& why) noexcept;
  void failed_everywhere(std::int64_t step, const std::string& why);

 private:
  void tell_interruption(const StepMetrics& first);
  void note_output_fault(std::int64_t step);
  void say_goodput();
  void write_report(const std::optional<std::string>& ended = {});

  Narrator narrator_;
  std::optional<Interruption> interruption_;  // until its cost is reported
  std::optional<MetricsLog> metrics_;
  std::optional<EventLog> events_;
  std::optional<RunReport> report_;
  PlanRecord plan_;
  std::function<void()> before_report_;
  bool output_fault_noted_ = false;
};

}  // namespace trireme
