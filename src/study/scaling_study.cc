#include "trireme/study/scaling_study.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/comm/launcher.h"
#include "trireme/io/whole_file.h"
#include "trireme/study/conditions.h"
#include "trireme/study/study_page.h"
#include "trireme/tasks/task.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

namespace fs = std::filesystem;

// Returns the settings that must be equal for points to be comparable. More nodes, grids or repeats
// may be added later.
std::map<std::string, std::string> identity_of(const StudyPlan& plan) {
  return {{"config", config_to_ini(plan.config)},
          {"ranks_per_node", std::to_string(plan.ranks_per_node)},
          {"fewest_nodes", std::to_string(plan.nodes.front())},
          {"steps", std::to_string(plan.steps)},
          {"warmup", std::to_string(plan.warmup)}};
}

std::string identity_text(const StudyPlan& plan) {
  Json object = Json::object();
  for (const auto& [key, value] : identity_of(plan)) object[key] = value;
  return object.dump(2) + "\n";
}

// Returns the first line of `now` that differs from `before`, and what it was.
std::string first_difference(const std::string& before, const std::string& now) {
  std::istringstream a(before), b(now);
  for (std::string x, y; std::getline(b, y);) {
    if (!std::getline(a, x)) x.clear();
    if (x != y) return fmt::format("'{}', it was '{}'", y, x);
  }
  return "a shorter configuration";
}

// The text of a configuration as this version writes it: a study may have been begun by one that
// knew fewer keys.
std::string as_written_now(const std::string& config) {
  try {
    return config_to_ini(config_from_ini(config, "study.json"));
  } catch (const ConfigError&) {
    return config;
  }
}

void check_same_study(const std::string& path, const StudyPlan& plan) {
  const Json before = Json::parse_or_null(read_file(path + "/study.json", ExitStatus::kRunFolder));
  for (const auto& [key, value] : identity_of(plan)) {
    const Json* found = before.find(key);
    const std::string was = found && found->is_text() ? found->text() : "";
    if (was == value || (key == "config" && as_written_now(was) == value)) continue;
    throw ConfigError(
        fmt::format("--output {}: another study was begun there: {}; give another folder", path,
                    key == "config" ? first_difference(was, value)
                                    : fmt::format("{} is {}, it was {}", key, value, was)));
  }
}

std::string model_text(const Config& config) {
  const auto preset = config.model.keys.find("preset");
  if (preset != config.model.keys.end()) return preset->second;
  return models::summary(models::resolve(config.model, {}).request);
}

std::string checkpoints_text(const Config::Checkpoint& checkpoint) {
  if (!checkpoint.every) {
    return fmt::format("as often as is best for a failure in {:g} h", checkpoint.mtbf.value_or(0));
  }
  if (*checkpoint.every == 0) return "at the end alone: not counted";
  return fmt::format("one in {} steps", std::int64_t{*checkpoint.every});
}

Facts facts_of_plan(const StudyPlan& plan) {
  return {{"model", model_text(plan.config)},
          {"batch",
           fmt::format("{} {} a step, in weak scaling on {} and in proportion on more; "
                       "micro-batches of {}",
                       plan.config.batch.global, tasks::task_of(plan.config.model).samples_name(),
                       counted(plan.nodes.front(), "node"), write_value(plan.config.batch.micro))},
          {"precision", plan.config.run.precision},
          {"ranks", fmt::format("{} a node", plan.ranks_per_node)},
          {"steps", fmt::format("{} a run, {} of them before the measurement; repeats: {}",
                                plan.steps, plan.warmup, plan.repeats)},
          {"checkpoints", checkpoints_text(plan.config.checkpoint)}};
}

std::string point_folder(const std::string& folder, const Point& point) {
  return folder + "/points/" + point.name();
}

}  // namespace

tasks::Unit unit_of(const StudyPlan& plan) {
  return tasks::task_of(plan.config.model).unit();
}

std::vector<PointResult> results_of(const std::string& folder, const StudyPlan& plan,
                                    const Point& point) {
  std::vector<PointResult> results;
  const auto add = [&](const Point& of) {
    auto result = read_result(point_folder(folder, of) + "/result.json", of);
    if (result) results.push_back(std::move(*result));
  };
  add(point);
  if (const auto twin = twin_of(plan, point)) add(*twin);
  return results;
}

StudyFolder::StudyFolder(std::string path, const StudyPlan& plan)
    : path_(std::move(path)), plan_(plan) {
  std::error_code error;
  fs::create_directories(path_ + "/points", error);
  if (error) throw RunFolderError(fmt::format("cannot make {}: {}", path_, error.message()));
  lock_ =
      std::make_unique<LockedFile>(path_ + "/lock", path_ + ": in use by another trireme scale");
  lock_->note("");
  if (look_at(path_ + "/study.json", ExitStatus::kRunFolder).is_there()) {
    check_same_study(path_, plan);
  } else {
    write_whole_file(path_ + "/study.json", identity_text(plan));
  }
}

std::string StudyFolder::folder_of(const Point& point) const {
  return point_folder(path_, point);
}

void StudyFolder::begin(const Point& point) const {
  const std::string folder = folder_of(point);
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) fs::create_directories(folder, error);
  if (error) throw RunFolderError(fmt::format("cannot make {}: {}", folder, error.message()));
  write_whole_file(folder + "/config.ini", config_to_ini(config_of(plan_, point, folder + "/run")));
  write_whole_file(
      folder + "/point.json",
      request_text(
          {plan_.warmup, std::int64_t{plan_.config.checkpoint.every.value_or(0)},
           plan_.config.checkpoint.every ? 0.0 : plan_.config.checkpoint.mtbf.value_or(0.0),
           plan_.launcher}));
}

std::vector<PointResult> StudyFolder::results_of(const Point& point) const {
  return scaling::results_of(path_, plan_, point);
}

void StudyFolder::keep(const Predictions& predictions) const {
  write_whole_file(path_ + "/predicted.json", predictions_text(predictions));
}

std::string StudyFolder::report(const std::vector<Point>& points) const {
  std::vector<PointResult> results;
  int done = 0;
  for (const Point& point : points) {
    const std::vector<PointResult> found = results_of(point);
    done += found.empty() ? 0 : 1;
    results.insert(results.end(), found.begin(), found.end());
  }
  StudyPage page{.facts = facts_of_plan(plan_),
                 .done = done,
                 .planned = static_cast<int>(points.size()),
                 .series = analyse(results_by_mode(plan_, results)),
                 .runs = results,
                 .unit = unit_of(plan_),
                 .least_efficiency = plan_.efficiency};
  const Predictions predictions = read_predictions(path_ + "/predicted.json");
  add_predictions(page.series, predictions, plan_);
  if (!predictions.points.empty()) page.facts.emplace_back("predicted for", predictions.machine);
  for (auto& fact : facts_of(results)) page.facts.push_back(std::move(fact));
  write_whole_file(path_ + "/points.csv", points_csv(plan_, results));
  write_whole_file(path_ + "/summary.csv", summary_csv(plan_, page.series));
  write_whole_file(path_ + "/report.html", page_of_study(page));
  std::string text = table_of(page.series, differences_of(results));
  if (!page.series.empty()) text += '\n';
  for (const std::string& verdict : verdicts_of(page.series, plan_.efficiency)) {
    text += fmt::format("\nverdict{}, {}", done < page.planned ? " so far" : "", verdict);
  }
  return text;
}

}  // namespace trireme::scaling
