// What a planner said of the points of a study, kept in its folder.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "study/scaling_files.h"

namespace trireme::scaling {

std::string predictions_text(const Predictions& predictions) {
  Json points = Json::object();
  for (const auto& [name, one] : predictions.points) {
    points[name] = Json::object({{"rate", one.rate}, {"low", one.low}, {"high", one.high}});
  }
  return Json::object({{"machine", predictions.machine}, {"points", points}}).dump(2) + "\n";
}

Predictions read_predictions(const std::string& path) {
  const std::optional<std::string> text = read_if_there(path, ExitStatus::kRunFolder);
  if (!text) return {};
  try {
    const Json object = Json::parse(*text);
    Predictions all{.machine = object.at("machine").text(), .points = {}};
    for (const auto& [name, one] : object.at("points").members()) {
      all.points.emplace_back(name, Predicted{one.at("rate").number(), one.at("low").number(),
                                              one.at("high").number()});
    }
    return all;
  } catch (const JsonError& error) {
    throw RunFolderError(fmt::format("{}: damaged ({}): trireme scale --plan writes it anew", path,
                                     shown(error.what())));
  }
}

void add_predictions(std::vector<Series>& series, const Predictions& predictions,
                     const StudyPlan& plan) {
  for (Series& one : series) {
    for (NodeCount& count : one.counts) {
      const Point point{
          .mode = one.mode, .nodes = count.nodes, .ranks = count.ranks, .grid = count.grid};
      const std::optional<Point> twin = twin_of(plan, point);
      const auto found = std::ranges::find_if(predictions.points, [&](const auto& said) {
        return said.first == point.name() || (twin && said.first == twin->name());
      });
      if (found != predictions.points.end()) count.predicted = found->second;
    }
  }
}

}  // namespace trireme::scaling
