// The grid of a run: its dimensions, and whether batches and the model fit it.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/parallel/work_split.h"

namespace trireme {

// Returns the grid with its data dimension divided as shard.* says. Throws ConfigError where
// shard.group does not divide it, and for shard.stage 3 where it is 1.
GridShape with_shards(const GridShape& grid, const Config::Shard& shard);

// Returns how many of the ranks an island has. Throws ConfigError where grid.islands does not
// divide them.
int ranks_of_island(const Config& config, int ranks);

// Resolves grid.* and shard.* for an island of `ranks` ranks. Throws ConfigError where the ranks do
// not fill the grid, a step has fewer micro-batches than the grid has replicas, they cannot be
// batch.runs runs there, batch.balance is of other replicas, or a model that joins data replicas
// cannot be trained there. Where batch.micro is not settled yet, some number of possible_micro will
// do.
GridShape resolve_run_grid(const Config& config, int ranks);

// Returns the split of a step by batch.balance. Where that is auto, it has the shares that it came
// to, or even ones where these are of another batch or grid.
parallel::WorkSplit work_of_step(const Config& config, const GridShape& grid,
                                 const parallel::BatchRuns& runs);
// The same for checks of memory: where batch.balance is auto, a replica has the most that it can
// come to.
parallel::WorkSplit largest_work(const Config& config, const parallel::WorkSplit& work);

// Returns what batch.micro can be on that grid, the largest first: divisors of batch.global that
// leave each replica a micro-batch, and equally many where the replicas divide batch.global, in
// numbers that batch.runs and grid.schedule take. The model is not asked.
std::vector<int> possible_micro(const Config& config, const GridShape& grid);

// Checks the run of a model that joins data replicas (models::Family::joins_replicas). Throws
// ConfigError where the replicas do not divide the micro-batches of a step, and for a batch.runs or
// run.same_bits that such a model cannot have.
void check_joined_replicas(const Config& config, const GridShape& grid);

// Call it for a start that continues a run with run.same_bits on other ranks than before. If the
// data replicas of grid.* no longer divide the runs of micro-batches, changes config.grid to a grid
// whose replicas do, within what is given of grid.*; or else gives run.same_bits up. Returns a line
// for the user, or nothing if all is as it was.
std::string keep_same_bits(Config& config, int ranks);

// Throws ConfigError where the tensor ranks cannot divide the model or, with sequence parallelism,
// the positions of a micro-batch, and where a step has more than 2^32 tokens.
void check_model_fits_grid(const Config& config, const models::Model& model, const GridShape& grid);

}  // namespace trireme
