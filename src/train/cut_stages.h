// The stages of a run whose grid.cut is auto.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/models/family.h"
#include "trireme/ops/context.h"

namespace trireme {

// Where grid.cut is auto, gives it the numbers of blocks of the checkpoint that this start goes on
// from, if they are of this model and as many stages. Returns a line for the user; nothing where
// it is not auto, or still to be settled.
std::string take_over_cut(const std::optional<Checkpoint>& checkpoint, const models::Model& model,
                          const GridShape& grid, Config& config);

// Collective. Settles grid.cut, where it is auto and not settled, by the speed of the slowest rank
// of each stage, which takes a second. `order` is the rank at each place. Returns a line for the
// user.
std::string settle_cut(Runtime& runtime, ops::Context& ctx, const std::vector<int>& order,
                       const GridShape& shape, const models::Model& model, Config& config);

// Speeds of stages with those as the fastest that reach nine tenths of it: less is noise.
std::vector<double> speeds_of_stages(std::vector<double> measured);

}  // namespace trireme
