// The data of a run, as its configuration asks for them.
#pragma once

#include <vector>

#include "trireme/config/config.h"
#include "trireme/tasks/task.h"

namespace trireme {

tasks::DataRequest training_data(const Config& config);
// `trained_on` are the marks of the training data (tasks::TaskData::encoding).
tasks::DataRequest held_out_data(const Config& config, std::vector<tasks::DataMark> trained_on);

}  // namespace trireme
