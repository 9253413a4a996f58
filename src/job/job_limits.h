// Compares what a job asks for with the cluster's limits and the job's own time limit.
#pragma once

#include <vector>

#include "trireme/job/job_script.h"

namespace trireme {

// Throws ConfigError if no partition has as many nodes with as many CPUs as `request` needs. Throws
// nothing if no partition is known.
void check_partition(const JobRequest& request, const std::vector<NodeGroup>& groups);

// Throws ConfigError for a malformed time limit, or if the time reserved before it (job.grace in a
// template that uses it, checkpoint.margin) is not shorter than the limit.
void check_time(const JobTemplate& job_template, const JobRequest& request, const Config& config);

}  // namespace trireme
