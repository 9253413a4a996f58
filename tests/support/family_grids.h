// What every family of models is asked on grids, besides the tests of its own.
#pragma once

#include <vector>

#include "support/equality.h"

namespace trireme::testing {

// Grids of all ranks with at most so many tensor ranks: all of them, but a few where there are six
// ranks or eight.
std::vector<GridShape> some_grids(int most_tensor);

// The data dimension of a grid, divided into shards, as of shard.stage 1, 2 or 3: of the
// optimizer's state, also of gradients, also of weights.
EqualityCase sharded(EqualityCase test, int stage);

// Collective over the world, as the following ones. The case says the model and its data; its grid,
// type and micro-batches are set here. With equal runs of micro-batches neither replicas, stages
// nor shards change a bit, in fp32, bf16 or fp16.
void expect_same_bits_on_every_layout(EqualityCase family);

// Shards of every stage have the bits of whole copies on the same grid, which the case says.
void expect_bits_of_whole_copies(const EqualityCase& copies);

// In bf16 and fp16 tensor ranks follow one rank that computes in the same type.
void expect_tensor_ranks_to_follow_in_16_bits(EqualityCase family);

}  // namespace trireme::testing
