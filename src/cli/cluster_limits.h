// The cluster's limits, from its site file and Slurm.
#pragma once

#include "trireme/job/job_script.h"

namespace trireme::cli {

// Returns the nodes of the site's partition, or of Slurm's default one, as sinfo counts them. A
// node's memory is that of the site file, otherwise that of the partition's smallest node. Limits
// that neither the file nor sinfo gives stay unknown.
ClusterLimits cluster_limits(const Site& site);

}  // namespace trireme::cli
