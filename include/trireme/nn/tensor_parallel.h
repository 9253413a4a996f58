// How activations enter and leave the parts of a model that are split over the tensor dimension
// (Shoeybi et al. 2019; sequence parallelism: Korthikanti et al. 2022).
//
// Outside such a part all rows are replicated on every tensor rank. With sequence parallelism each
// tensor rank holds an equal share of the rows instead.
#pragma once

#include "trireme/nn/tape.h"

namespace trireme::nn {

struct TensorParallel {
  Communicator* comm = nullptr;  // the tensor dimension; null: one rank
  bool sequence = false;         // sequence parallelism

  int size() const { return comm == nullptr ? 1 : comm->size(); }
  int rank() const { return comm == nullptr ? 0 : comm->rank(); }
  bool splits_rows() const { return sequence && size() > 1; }
  // The number of rows that this rank holds outside tensor-parallel parts. `rows` must be divisible
  // by size() if sequence parallelism is on.
  std::int64_t outside_rows(std::int64_t rows) const {
    return splits_rows() ? rows / size() : rows;
  }
  std::int64_t first_outside_row(std::int64_t rows) const {
    return splits_rows() ? rank() * (rows / size()) : 0;
  }
};

// The holders of a parameter that is used outside tensor-parallel parts. Every tensor rank holds
// it. With sequence parallelism the ranks see different rows, so their gradients are partial sums.
Holders outside_holders(const TensorParallel& parallel);

// Enters a tensor-parallel part: x (outside rows, C) -> (rows, C). The backward sums the ranks'
// partial gradients.
Value enter(Tape& tape, const TensorParallel& parallel, const Value& x);
// Leaves a tensor-parallel part: sums the ranks' partial x (rows, C) -> (outside rows, C). May sum
// in place. The backward gathers the gradient of all rows.
Value leave(Tape& tape, const TensorParallel& parallel, const Value& x);

}  // namespace trireme::nn
