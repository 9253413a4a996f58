#include "trireme/report/run_history.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/base/upper_median.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/checkpoint.h"
#include "trireme/tasks/task.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStepsForEstimate = 50;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns when a file was last written, in seconds since 1970.
std::optional<double> time_of(const std::string& path) {
  const FileFacts facts = look_at(path, ExitStatus::kRunFolder);
  if (!facts.is_there()) return {};
  return 1e-9 * static_cast<double>(facts.changed_ns);
}

void check_is_run(const std::string& folder) {
  const FileFacts facts = look_ahead(folder, ExitStatus::kRunFolder);
  if (!facts.is_folder()) {
    throw RunFolderError(
        fmt::format("{}: {}; expected the folder of a run", folder,
                    facts.is_there() ? "not a folder" : "there is no such folder"));
  }
  for (const char* name : {"config.ini", "metrics.jsonl", "lease", "checkpoints"}) {
    if (look_at(fmt::format("{}/{}", folder, name), ExitStatus::kRunFolder).is_there()) return;
  }
  throw RunFolderError(folder +
                       ": not a run folder: it holds neither config.ini nor metrics.jsonl");
}

// JSON has no NaN, so NaN is written as null.
double number(const Json& object, std::string_view key, double otherwise) {
  const Json* found = object.find(key);
  return found && found->is_number() ? found->number() : otherwise;
}

// Returns a count or an amount. It is limited, since a file may hold any number.
double amount(const Json& object, std::string_view key) {
  constexpr double kMost = 1e18;
  return std::clamp(number(object, key, 0.0), 0.0, kMost);
}

// A share of a whole; nothing if the line has none.
std::optional<double> share(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  if (!found || !found->is_number()) return {};
  return std::clamp(found->number(), 0.0, 1.0);
}

Evaluation evaluation_of(const Json& object, std::int64_t step) {
  return {.step = step,
          .loss = number(object, "eval_loss", kNan),
          .seconds = amount(object, "eval_s"),
          .top1 = share(object, "eval_top1"),
          .top5 = share(object, "eval_top5"),
          .time = amount(object, "time")};
}

StepMetrics step_of(const Json& object, std::int64_t step, const tasks::Unit& unit) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.time = amount(object, "time");
  metrics.loss = number(object, "loss", kNan);
  metrics.learning_rate = number(object, "lr", 0.0);
  metrics.gradient_norm = number(object, "grad_norm", kNan);
  metrics.units = static_cast<std::int64_t>(amount(object, unit.many));
  metrics.units_per_second = number(object, unit.rate_key(), 0.0);
  metrics.step_seconds = amount(object, "step_s");
  metrics.wait_data_seconds = amount(object, "wait_data_s");
  metrics.exposed_comm_seconds = amount(object, "comm_s");
  metrics.memory_bytes = amount(object, "memory_bytes");
  metrics.device_memory_bytes = amount(object, "device_memory_bytes");
  if (const Json* memory = object.find("memory")) {
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
      metrics.memory_peak[use] = amount(*memory, name_of(static_cast<MemoryUse>(use)));
    }
  }
  if (const Json* losses = object.find("island_losses"); losses && losses->is_array()) {
    for (const Json& loss : losses->items()) {
      metrics.losses_of_islands.push_back(loss.is_number() ? loss.number() : kNan);
    }
  }
  const auto says = [&](std::string_view key) {
    const Json* found = object.find(key);
    return found != nullptr && found->boolean();
  };
  metrics.skipped = says("skipped");
  metrics.no_targets = says("no_targets");
  return metrics;
}

// Where a step was recorded twice, the later record counts.
template <class Entry>
void put(std::vector<Entry>& entries, const Entry& entry) {
  while (!entries.empty() && entries.back().step >= entry.step) entries.pop_back();
  entries.push_back(entry);
}

}  // namespace

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      return "stopped";
    case RunState::kSilent:
      return "silent";
  }
  throw InternalError("a run state without a name");
}

StepAverages average(std::span<const StepMetrics> steps) {
  StepAverages averages;
  double seconds = 0.0, units = 0.0, waited = 0.0, communicated = 0.0;
  for (const StepMetrics& step : steps) {
    seconds += step.step_seconds;
    units += step.units_per_second * step.step_seconds;
    waited += step.wait_data_seconds;
    communicated += step.exposed_comm_seconds;
  }
  averages.steps = static_cast<std::int64_t>(steps.size());
  if (seconds <= 0.0) return averages;
  averages.step_seconds = seconds / static_cast<double>(steps.size());
  averages.units_per_second = units / seconds;
  averages.wait_data_share = waited / seconds;
  averages.exposed_comm_share = communicated / seconds;
  return averages;
}

std::string losses_text(std::span<const double> losses) {
  std::string text;
  for (const double loss : losses) {
    text += fmt::format("{}{:.4f}", text.empty() ? "" : " ", loss);
  }
  return text;
}

RunHistory::RunHistory(std::string folder) : folder_(std::move(folder)) {
  update();
}

void RunHistory::update() {
  check_is_run(folder_);
  // Reads the lease first. A run that ends meanwhile writes everything else before it gives the
  // lease back, so what is read after "nobody holds it" is complete.
  read_lease_of_run();
  read_config();
  read_checkpoint();
  read_metrics();
  if (auto ranks = read_rank_table(folder_ + "/ranks.json")) ranks_ = std::move(ranks);
  if (auto table = read_communication_table(folder_ + "/communication.json")) {
    communication_ = std::move(table);
  }
  if (auto events = read_events(folder_ + "/events.jsonl"); !events.empty()) {
    events_ = std::move(events);
  }
  now_ = unix_seconds();
}

void RunHistory::read_metrics() {
  const std::string path = folder_ + "/metrics.jsonl";
  metrics_written_ = time_of(path);
  auto file = FileReader::open_if_there(path, ExitStatus::kRunFolder);
  if (!file) return;
  // If the file has only grown, the last line that was read is still at its place.
  std::string line;
  file->seek(offset_ - static_cast<std::int64_t>(last_line_.size()));
  bool whole = true;  // without a newline a line is not complete yet
  const bool has_last = last_line_.empty() || (file->line(line, &whole) && whole);
  if (!has_last || (!last_line_.empty() && line + "\n" != last_line_)) {
    steps_.clear();
    evaluations_.clear();
    last_line_.clear();
    offset_ = 0;
    ++rewrites_;
    file->seek(0);
  }
  while (file->line(line, &whole) && whole) {
    take_line(line);
    offset_ += static_cast<std::int64_t>(line.size()) + 1;
    last_line_ = line + "\n";
  }
}

void RunHistory::take_line(std::string_view line) {
  try {
    const Json object = Json::parse(line);
    constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
    const std::int64_t step = object.at("step").integer();
    if (step < 0 || step > kMostSteps) return;
    if (object.find("eval_loss")) {
      put(evaluations_, evaluation_of(object, step));
    } else if (object.find("loss")) {
      unit_ = tasks::unit_in(object);
      put(steps_, step_of(object, step, unit_));
    }
  } catch (const JsonError&) {
    // A killed run left the line half written, and the next one appended to it.
  }
}

void RunHistory::read_config() {
  const auto text = read_if_there(folder_ + "/config.ini", ExitStatus::kRunFolder);
  if (!text || *text == config_text_) return;
  config_text_ = *text;
  try {
    config_ = config_from_ini(config_text_, folder_ + "/config.ini");
  } catch (const ConfigError&) {
    // Half written, or written by another version. The last good one stays.
  }
}

void RunHistory::read_checkpoint() {
  const std::vector<CheckpointFile> files = list_checkpoints(folder_ + "/checkpoints");
  checkpoint_.reset();
  if (files.empty()) return;
  const CheckpointFile& newest = files.back();
  const double written = time_of(newest.path).value_or(unix_seconds());
  checkpoint_ = {newest.step, newest.path, newest.bytes, std::max(0.0, unix_seconds() - written)};
}

void RunHistory::read_lease_of_run() {
  try {
    lease_ = read_lease(folder_);
    holder_alive_ = lease_ && seems_alive(*lease_);
  } catch (const RunFolderError& error) {
    if (error.unreadable()) throw;
    // The lease is damaged. The next job judges it; here the last known one stays.
  }
}

std::span<const StepMetrics> RunHistory::last_steps(std::size_t count) const {
  return std::span<const StepMetrics>(steps_).last(std::min(count, steps_.size()));
}

bool RunHistory::told_to_have_ended() const {
  if (!lease_ || events_.empty()) return false;
  return tells_of_an_end(events_.back()) &&
         events_.back().time > static_cast<double>(lease_->heartbeat);
}

RunState RunHistory::state() const {
  if (lease_ && !told_to_have_ended())
    return holder_alive_ ? RunState::kRunning : RunState::kSilent;
  // A run is done when its last checkpoint is written. Without any checkpoint its last step counts,
  // since somebody may have removed them all.
  if (config_ && config_->sync.is_member()) {  // its checkpoints are none of the run's
    const bool finished =
        std::ranges::any_of(events_, [](const RunEvent& one) { return one.kind == "finish"; });
    return finished ? RunState::kFinished : RunState::kStopped;
  }
  const std::int64_t saved = checkpoint_ ? checkpoint_->step : step();
  return total_steps() && saved >= *total_steps() ? RunState::kFinished : RunState::kStopped;
}

std::string RunHistory::state_text() const {
  const RunState now = state();
  std::string text(name_of(now));
  if (now == RunState::kRunning && steps_.empty()) text += ", no step yet";
  if (now == RunState::kSilent) text += ": no sign of life of its process";
  if (now == RunState::kStopped && !events_.empty()) {
    const RunEvent& last = events_.back();
    if (last.kind == "requeue") text = printable(last.detail);
    if (last.kind == "failure") text = "failed: " + printable(last.detail);
  }
  return text;
}

Goodput RunHistory::goodput() const {
  RunRecords records{.steps = steps_, .evaluations = evaluations_, .events = events_};
  if (lease_) {
    records.running = holder_alive_ && !told_to_have_ended();
    records.alive = records.running ? now_ : static_cast<double>(lease_->heartbeat);
  }
  return goodput_of(records);
}

std::int64_t RunHistory::step() const {
  if (!steps_.empty()) return steps_.back().step;
  return checkpoint_ ? checkpoint_->step : 0;
}

std::optional<std::int64_t> RunHistory::total_steps() const {
  if (!config_ || config_->run.steps.epochs() || takes_steps_by_time(*config_)) return {};
  return std::max(std::int64_t{config_->run.steps}, step());
}

std::optional<double> RunHistory::metrics_age() const {
  if (!metrics_written_) return {};
  return std::max(0.0, now_ - *metrics_written_);
}

double RunHistory::age(const RunEvent& event) const {
  return std::max(0.0, now_ - event.time);
}

std::optional<double> RunHistory::heartbeat_age() const {
  if (!lease_) return {};
  return std::max(0.0, now_ - static_cast<double>(lease_->heartbeat));
}

std::optional<double> RunHistory::seconds_left() const {
  if (state() != RunState::kRunning || !total_steps() || steps_.empty()) return {};
  const auto left = static_cast<double>(std::max<std::int64_t>(0, *total_steps() - step()));
  return left * average(last_steps(kStepsForEstimate)).step_seconds;
}

std::optional<double> measured_step(std::span<const StepMetrics> steps) {
  constexpr std::size_t kFirst = 3, kLeast = 3;  // the first ones warm up
  if (steps.size() < kFirst + kLeast) return {};
  std::vector<double> seconds;
  for (const StepMetrics& step : steps.subspan(kFirst)) seconds.push_back(step.step_seconds);
  return upper_median(std::move(seconds));
}

std::string planned_text(const RunHistory& history) {
  const std::optional<Config>& config = history.config();
  if (!config) return {};
  const Config::Plan& plan = config->plan;
  if (!plan.is_of(config->grid.shape().ranks() * config->grid.islands)) return {};
  std::string text = "predicted " + time_text(*plan.step);
  if (plan.low && plan.high) {
    text += fmt::format(" ({} to {})", time_text(*plan.low), time_text(*plan.high));
  }
  const std::optional<double> measured = measured_step(history.steps());
  return text + (measured ? ", measured " + time_text(*measured) : ", not measured yet");
}

}  // namespace trireme
