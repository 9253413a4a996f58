// What `trireme memory` says of the pipeline schedules that a grid could run.
#pragma once

#include "trireme/base/json.h"
#include "trireme/config/config.h"
#include "trireme/plan/dry_run.h"

namespace trireme::cli {

// A table, a line for each schedule, after what the ranks hold. Nothing without pipeline stages.
void print_schedules(const Config& config, const plan::DryRunInput& input);

// The same for programs; empty without pipeline stages.
Json json_of_schedules(const Config& config, const plan::DryRunInput& input);

}  // namespace trireme::cli
