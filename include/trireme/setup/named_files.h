// The small files that a configuration names.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/optim/schedule.h"

namespace trireme {

// Returns the contents of schedule.file, and nothing where no file is named. Throws ConfigError.
std::string learning_rates_file(const Config::Schedule& schedule);
// Returns the learning rates in those contents; none where no file is named. Throws ConfigError.
std::vector<optim::LearningRatePoint> learning_rates_in(const std::string& contents,
                                                        const Config::Schedule& schedule);

// Returns the contents of cuda.products, and nothing where no file is named. Throws ConfigError.
std::string products_file(const Config::Cuda& cuda);

// Reads the files of schedule.file, cuda.products, comm.network, grid.order and nccl.tuner, for a
// job that will start later, and checks what depends on none of its nodes. Throws ConfigError as
// the start does.
void check_named_files(const Config& config);

}  // namespace trireme
