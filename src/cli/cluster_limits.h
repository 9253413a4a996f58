// The cluster's limits, from its site file and Slurm.
#pragma once

#include "trireme/train/job_script.h"

namespace trireme::cli {

// Returns the nodes of the site's partition, or of Slurm's default one, as sinfo counts them. A
// node's memory is the site file's, otherwise that of the partition's smallest node. What neither
// the file nor sinfo says stays unknown.
ClusterLimits cluster_limits(const Site& site);

}  // namespace trireme::cli
