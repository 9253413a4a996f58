// The grids and models whose training is compared with that of one rank.
#pragma once

#include <string>
#include <vector>

#include "support/equality.h"

namespace trireme::testing {

constexpr double kDropout = 0.1;  // where a case has some

// A case of this grid. Its heads can be split by the tensor ranks; there are 12 in worlds with a
// factor of 3. A tied model drops out.
EqualityCase base_case(const GridShape& grid, bool llama, bool tied);

// A case of this grid whose blocks multiply in e4m3: all extents are multiples of 128 on each rank.
EqualityCase scaled_case(const GridShape& grid, bool llama);

// All grids data x pipeline x tensor of so many ranks.
std::vector<GridShape> factorizations(int ranks);
// The one of these with the most dimensions above 1.
GridShape most_dimensions(int ranks);
// The grid whose data dimension is divided into groups of `group` ranks that share one copy.
GridShape sharded(GridShape grid, int group);

// Chunks and deferred weight gradients, with families and tying in turn. Shares are unequal where
// the schedule takes them.
std::vector<EqualityCase> schedule_cases(int ranks);
// Returns the schedules in turn, but for those that the blocks or the micro-batches do not fit.
std::string schedule_that_fits(const EqualityCase& test, int number);

}  // namespace trireme::testing
