// What `trireme top` shows of a sweep, as text.
#pragma once

#include <string>
#include <vector>

#include "trireme/report/sweep_history.h"

#include "cli/top_view.h"

namespace trireme::cli {

// Returns at most size.rows lines of at most size.columns characters, without control characters: a
// row for each run. If there is no room for all runs, the best one is still among those shown.
std::vector<std::string> sweep_view(const SweepHistory& sweep, const ViewSize& size);

}  // namespace trireme::cli
