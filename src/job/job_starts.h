// What a start of a job does with the nodes that it gets, as jobs/step.sh does it.
#pragma once

#include <string>
#include <vector>

#include "trireme/job/job_script.h"

namespace trireme {

// Returns the number of ranks of a replica on each island. For several points with different grids,
// returns a multiple of all of them.
int model_ranks(const JobPlan& plan);

// Returns the number that the data replicas of all points must divide; 0 if any number will do.
int micro_batches_to_divide(const JobPlan& plan);

// Returns with how many nodes a start still goes on.
int fewest_nodes(const JobRequest& request, const Config& config, const JobPlan& plan);

// Returns the configuration with the dimensions of the grid that the script fixes. The data
// dimension stays open unless the user has given it, so that the job can continue on fewer nodes.
// The other dimensions are fixed, because the run computes with them. With run.same_bits the
// pipeline stays open too: there the number of stages changes no bit, and a start on fewer nodes
// may need another one to keep the bits.
Config with_fixed_grid(const Config& config, const GridShape& grid);

// Looks at each number of nodes that the job may get. Throws ConfigError for a number on which no
// run could start. Returns a line where a start would leave nodes out; empty: nowhere.
std::string check_every_start(const JobTemplate& job_template, const Config& config,
                              const JobRequest& request, const JobPlan& plan);

}  // namespace trireme
