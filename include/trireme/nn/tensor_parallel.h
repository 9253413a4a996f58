// How activations enter and leave the parts of a model that are split over the tensor dimension
// (Shoeybi et al. 2019; sequence parallelism: Korthikanti et al. 2022).
//
// Outside such a part a rank holds all rows, the same on every tensor rank; with sequence
// parallelism an equal share of the rows each.
#pragma once

#include "trireme/nn/tape.h"

namespace trireme::nn {

struct TensorParallel {
  Communicator* comm = nullptr;  // the tensor dimension
  bool sequence = false;         // sequence parallelism

  int size() const { return comm->size(); }
  int rank() const { return comm->rank(); }
  bool splits_rows() const { return sequence && size() > 1; }
  // Rows that this rank holds outside tensor-parallel parts. `rows` is divisible by size() where
  // sequence parallelism is on.
  std::int64_t outside_rows(std::int64_t rows) const {
    return splits_rows() ? rows / size() : rows;
  }
  std::int64_t first_outside_row(std::int64_t rows) const {
    return splits_rows() ? rank() * (rows / size()) : 0;
  }
};

// Of a parameter that is used outside those parts: every tensor rank holds it, and where the ranks
// see different rows, their gradients are partial sums.
Copies outside_copies(const TensorParallel& parallel);

// x (outside rows, C) -> (rows, C). Backward: each rank's partial gradient is added up.
Value enter(Tape& tape, const TensorParallel& parallel, const Value& x);
// Adds up each rank's partial x (rows, C) -> (outside rows, C). Backward: the gradient of all rows.
Value leave(Tape& tape, const TensorParallel& parallel, const Value& x);

}  // namespace trireme::nn
