// Tables of learning rates, which schedule.file names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/optim/schedule.h"

namespace trireme::optim {

// Reads a table: a line for each point, with the step (the first of a run is 1, and 0 stands before
// it) and the part of optim.lr there, 0 to 1, as in "100 0.5". Steps rise, and the largest part is
// 1. A # begins a comment. `origin` names the file in errors. Throws ConfigError.
std::vector<LearningRatePoint> read_learning_rates(std::string_view text,
                                                   const std::string& origin);

// The table as text that reads back to it: the same for the same points.
std::string learning_rates_text(const std::vector<LearningRatePoint>& points);

}  // namespace trireme::optim
