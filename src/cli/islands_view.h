// What `trireme top` shows of a run that several jobs carry, as text.
#pragma once

#include <string>
#include <vector>

#include "trireme/report/islands_history.h"

#include "cli/top_view.h"

namespace trireme::cli {

// Returns at most size.rows lines of at most size.columns characters, without control characters: a
// row for each member. If there is no room for all, those at work are among those shown.
std::vector<std::string> islands_view(const IslandsHistory& run, const ViewSize& size);

}  // namespace trireme::cli
