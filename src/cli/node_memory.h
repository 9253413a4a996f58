// What a node of the cluster holds.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/train/job_script.h"

namespace trireme::cli {

// Memory of a node that jobs may use, in MiB: the site file's, otherwise that of the partition's
// smallest node as sinfo counts it; none where neither says it.
std::optional<std::int64_t> node_memory(const Site& site);

}  // namespace trireme::cli
