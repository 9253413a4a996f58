// What a job asks for against what the cluster and the job's own time limit leave.
#pragma once

#include <vector>

#include "trireme/train/job_script.h"

namespace trireme {

// Throws ConfigError where no partition has so many nodes with so many CPUs; not where nothing is
// known of any.
void check_partition(const JobRequest& request, const std::vector<NodeGroup>& groups);

// Throws ConfigError where the time limit is none, or where what is kept free before it (job.grace
// in a template that uses it, checkpoint.margin) is not shorter than it.
void check_time(const JobTemplate& job_template, const JobRequest& request, const Config& config);

}  // namespace trireme
