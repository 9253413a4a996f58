// The small files of a study's folder.
#pragma once

#include <optional>
#include <string>

#include "trireme/study/scaling_study.h"

namespace trireme::scaling {

// points/NAME/point.json: what a point needs besides its configuration.
struct PointRequest {
  int warmup = 0;
  std::int64_t checkpoint_every = 0;   // steps; 0: the time of checkpoints does not count
  double checkpoint_mtbf_hours = 0.0;  // above 0: checkpoints at the best interval for it
  std::string launcher;                // for the record; "not known" in a file of an old version
};
std::string request_text(const PointRequest& request);
// `steps` is the number of the point's steps. Throws RunFolderError that names `path`.
PointRequest request_in(const std::string& text, const std::string& path, std::int64_t steps);

// points/NAME/result.json. read_result returns nullopt where the file is absent, damaged or holds
// no rate, and throws RunFolderError where it cannot be read: a measured point must not be measured
// again. The result's point is `point`.
std::string result_text(const Measurement& measured, const Conditions& conditions);
std::optional<PointResult> read_result(const std::string& path, const Point& point);

// predicted.json. read_predictions returns none where the file is absent, and throws RunFolderError
// where it cannot be read or is damaged.
std::string predictions_text(const Predictions& predictions);
Predictions read_predictions(const std::string& path);
// Gives each number of nodes what was said of it, under its own name or its twin's.
void add_predictions(std::vector<Series>& series, const Predictions& predictions,
                     const StudyPlan& plan);

tasks::Unit unit_of(const StudyPlan& plan);  // of progress

// Returns "mean ± half width" with `digits` decimals, or the mean alone; both in units of `scale`.
std::string estimate_text(const Estimate& estimate, double scale, int digits);

// Returns "3019 (-2.3 %)": the predicted rate and its error; "" where none was predicted.
std::string predicted_text(const NodeCount& count);

// `results` are the runs, each once.
std::string points_csv(const StudyPlan& plan, const std::vector<PointResult>& results);
std::string summary_csv(const StudyPlan& plan, const std::vector<Series>& series);
// Returns a table for a terminal of 100 columns. `remarks` are about the study as a whole.
std::string table_of(const std::vector<Series>& series, const std::vector<std::string>& remarks);
// Returns the verdicts, one line for each series.
std::vector<std::string> verdicts_of(const std::vector<Series>& series, double least_efficiency);

}  // namespace trireme::scaling
