// `trireme plan --calibrate`: the constants of a machine, fitted to runs that it has done.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/exit_status.h"

#include "cli/planning.h"

namespace trireme::cli {

// Fits the constants of the device and the network to the measured steps of these runs, prints them
// with their uncertainty, and writes a site's file to `output`, if it is named. Throws ConfigError
// for a run that has measured too few steps.
ExitStatus calibrate_plan(const std::vector<std::string>& folders, const PlanRequest& request,
                          const std::string& output);

}  // namespace trireme::cli
