// What ranks hold, as `trireme memory` and `trireme plan` show it.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/plan/dry_run.h"

namespace trireme::cli {

// A table with a line for each kind of rank, in MiB, when it holds most, and one on what NCCL takes
// besides of the rank of which it takes most.
void print_memory(const GridShape& grid, const std::vector<plan::DryRunResult>& results);

// "forward of micro-batch 3", "optimizer".
std::string point_text(const MemoryPoint& point);

}  // namespace trireme::cli
