// What the cluster has, as its site file and Slurm say.
#pragma once

#include "trireme/train/job_script.h"

namespace trireme::cli {

// The nodes of the site's partition, or of Slurm's default one, as sinfo counts them. A node's
// memory is the site file's, otherwise that of the partition's smallest node. Where neither the
// file nor sinfo says something, it is not known.
ClusterLimits cluster_limits(const Site& site);

}  // namespace trireme::cli
