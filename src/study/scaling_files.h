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
  double checkpoint_mtbf_hours = 0.0;  // above 0: the best interval for it
};
std::string request_text(const PointRequest& request);

// points/NAME/result.json. read_result returns nullopt where the file is missing or incomplete.
std::string result_text(const Measurement& measured);
std::optional<Measurement> read_result(const std::string& path);

std::string points_csv(const std::vector<PointResult>& results);
std::string summary_csv(const std::vector<Series>& series);
// For a terminal of 100 columns.
std::string table_of(const std::vector<Series>& series);

}  // namespace trireme::scaling
