// The small files of a study's folder.
#pragma once

#include <optional>
#include <string>

#include "trireme/train/scaling_study.h"

namespace trireme::scaling {

// points/NAME/point.json: what a point must know beside its configuration.
struct PointRequest {
  int warmup = 0;
  std::int64_t checkpoint_every = 0;
};
std::string request_text(const PointRequest& request);

// points/NAME/result.json. None where it is not there or not complete.
std::string result_text(const Measurement& measured);
std::optional<Measurement> read_result(const std::string& path);

std::string points_csv(const std::vector<PointResult>& results);
std::string summary_csv(const std::vector<Series>& series);
// For a terminal of 100 columns.
std::string table_of(const std::vector<Series>& series);

}  // namespace trireme::scaling
