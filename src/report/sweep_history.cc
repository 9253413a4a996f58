#include "trireme/report/sweep_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::int64_t kMostPoint = 1'000'000;

std::optional<std::int64_t> point_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || number < 0 || number > kMostPoint) return {};
  return number;
}

std::optional<std::int64_t> point_of_folder(const std::string& name) {
  constexpr std::string_view kPrefix = "point-";
  if (!name.starts_with(kPrefix)) return {};
  return point_number(std::string_view(name).substr(kPrefix.size()));
}

// Returns the same text for equal numbers, such as "0.001" and "1e-3".
std::string comparable(const std::string& value) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_number = error == std::errc() && end == value.data() + value.size();
  return is_number ? fmt::format("{}", number) : value;
}

// Returns the keys and values of INI text as this program writes it.
std::map<std::string, std::string> values_of_ini(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream stream(text);
  std::string section;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("[") && line.ends_with("]")) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

double mean_loss(std::span<const StepMetrics> steps) {
  double sum = 0.0;
  std::int64_t count = 0;
  for (const StepMetrics& step : steps) {
    if (!std::isfinite(step.loss)) continue;
    sum += step.loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

// Returns what is damaged in a folder that RunHistory accepts; empty if nothing is.
std::string damage_of(const RunHistory& history) {
  const auto facts = [&](const char* name) {
    return look_at(history.folder() + "/" + name, ExitStatus::kRunFolder);
  };
  if (!history.config() && facts("config.ini").is_there()) {
    return "damaged: config.ini is no configuration, or another version wrote it";
  }
  const bool none = history.steps().empty() && history.evaluations().empty();
  if (none && facts("metrics.jsonl").bytes > 0) {
    return "damaged: metrics.jsonl holds no step";
  }
  return "";
}

}  // namespace

bool SweepHistory::is_sweep(const std::string& folder) {
  if (!look_ahead(folder, ExitStatus::kRunFolder).is_folder()) return false;
  const auto holds = [&](const char* name) {
    return look_at(fmt::format("{}/{}", folder, name), ExitStatus::kRunFolder).is_there();
  };
  if (holds("config.ini") || holds("metrics.jsonl") || holds("lease")) return false;
  if (holds("points.txt")) return true;
  const auto names = names_in(folder, ExitStatus::kRunFolder);
  return names && std::ranges::any_of(*names, [](const std::string& name) {
           return point_of_folder(name).has_value();
         });
}

SweepHistory::SweepHistory(std::string folder) : folder_(std::move(folder)) {
  update();
}

void SweepHistory::find_points() {
  points_.clear();
  swept_.clear();
  const auto names = names_in(folder_, ExitStatus::kRunFolder);
  if (!names) throw RunFolderError(folder_ + ": there is no such folder");
  for (const std::string& name : *names) {
    if (const auto point = point_of_folder(name)) points_[*point];
  }
  auto file = FileReader::open_if_there(folder_ + "/points.txt", ExitStatus::kRunFolder);
  for (std::string line; file && file->line(line);) {
    std::istringstream words(line);
    std::string word;
    std::getline(words, word, '\t');
    const auto point = point_number(word);
    if (!point) continue;
    Values& values = points_[*point];
    while (std::getline(words, word, '\t')) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) continue;
      const std::string key = word.substr(0, equals);
      if (key == "run.folder") continue;
      values[key] = word.substr(equals + 1);
      if (std::find(swept_.begin(), swept_.end(), key) == swept_.end()) swept_.push_back(key);
    }
  }
}

void SweepHistory::update() {
  find_points();
  runs_.clear();
  std::vector<Values> values;
  for (const auto& [point, given] : points_) {
    values.push_back(given);
    runs_.push_back(read(point, values.back()));
  }
  choose_keys(values);
  choose_best();
}

// `values` are those of points.txt. If the run has started, they are replaced by those of its
// configuration.
SweepRun SweepHistory::read(std::int64_t point, Values& values) {
  SweepRun run;
  run.point = point;
  const std::string folder = fmt::format("{}/point-{}", folder_, point);
  std::unique_ptr<RunHistory>& history = histories_[point];
  if (!look_at(folder, ExitStatus::kRunFolder).is_there()) {
    history.reset();
    run.state = "not started";
    return run;
  }
  try {
    if (history) {
      history->update();
    } else {
      history = std::make_unique<RunHistory>(folder);
    }
  } catch (const RunFolderError& fault) {
    if (fault.unreadable()) throw;  // it may be the best run of all
    history.reset();
    run.state = fmt::format("damaged: {}", fault.what());
    return run;
  }
  run.running = history->state() == RunState::kRunning;
  run.finished = history->state() == RunState::kFinished;
  run.state = damage_of(*history);
  if (run.state.empty()) run.state = history->state_text();
  run.step = history->step();
  run.total_steps = history->total_steps();
  run.loss = mean_loss(history->last_steps(kLossSteps));
  if (!history->evaluations().empty()) run.validation_loss = history->evaluations().back().loss;
  if (history->config()) values = values_of_ini(config_to_ini(*history->config()));
  return run;
}

void SweepHistory::choose_keys(const std::vector<Values>& values) {
  std::vector<std::string> candidates = swept_;
  std::set<std::string> others;
  for (const Values& of_run : values) {
    for (const auto& [key, value] : of_run) others.insert(key);
  }
  for (const std::string& key : swept_) others.erase(key);
  others.erase("run.folder");
  candidates.insert(candidates.end(), others.begin(), others.end());
  keys_.clear();
  for (const std::string& key : candidates) {
    std::set<std::string> different;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto found = values[i].find(key);
      const bool started = history(runs_[i].point) && history(runs_[i].point)->config();
      if (found != values[i].end()) different.insert(comparable(found->second));
      // A run that has not started says nothing about keys that the sweep does not vary.
      if (found == values[i].end() && started) different.insert("");
    }
    if (different.size() > 1) keys_.push_back(key);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const std::string& key : keys_) {
      const auto found = values[i].find(key);
      runs_[i].values.push_back(found == values[i].end() ? "" : found->second);
    }
  }
}

bool SweepHistory::judged_by_validation() const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [](const SweepRun& run) { return std::isfinite(run.validation_loss); });
}

void SweepHistory::choose_best() {
  const bool by_validation = judged_by_validation();
  SweepRun* best = nullptr;
  const auto loss = [&](const SweepRun& run) {
    return by_validation ? run.validation_loss : run.loss;
  };
  for (SweepRun& run : runs_) {
    if (std::isfinite(loss(run)) && (!best || loss(run) < loss(*best))) best = &run;
  }
  if (best) best->best = true;
}

const RunHistory* SweepHistory::history(std::int64_t point) const {
  const auto found = histories_.find(point);
  return found == histories_.end() ? nullptr : found->second.get();
}

std::string SweepHistory::summary() const {
  const auto count = [&](auto which) { return std::count_if(runs_.begin(), runs_.end(), which); };
  const auto finished = count([](const SweepRun& run) { return run.finished; });
  const auto running = count([](const SweepRun& run) { return run.running; });
  const auto others = static_cast<std::ptrdiff_t>(runs_.size()) - finished - running;
  return fmt::format("{}: {} finished, {} running, {}", counted(std::ssize(runs_), "run"), finished,
                     running, counted(others, "other"));
}

bool SweepHistory::finished() const {
  return std::all_of(runs_.begin(), runs_.end(), [](const SweepRun& run) { return run.finished; });
}

}  // namespace trireme
