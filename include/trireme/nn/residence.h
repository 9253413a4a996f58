// Which ranks hold a tensor of the model's state, and whose parts of it are added up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/group_label.h"
#include "trireme/nn/placement.h"
#include "trireme/tensor/dtype.h"

namespace trireme::nn {

// What is kept of a tensor.
struct Storage {
  std::optional<DType> weights = DType::kF32;  // none: those of another use of the same tensor
  bool master = true;                          // in fp32, for the optimizer
  bool gradient = true;                        // in fp32
  bool operator==(const Storage&) const = default;
};

// The spans are of the grid and independent of each other: a rank's place in one says nothing of
// its place in another one.
struct Residence {
  std::string name;  // global: "blocks.3.attention.query.weight"
  Placement slice;
  // Ranks that differ in their place in any of these, and in nothing else, hold the same elements.
  std::vector<Span> copied;
  // The ranks of this one hold the slice together: the flat memory that it lies in is divided among
  // them.
  Span divided;
  // Each rank of these computes a part of the gradient, and the parts are added up, over one span
  // after the other. Ranks of a span that is copied alone compute the same.
  std::vector<Span> summed;
  Storage storage;

  // How many copies there are among ranks that differ in `among` alone, and which of them the rank
  // at `place` has, from 0. Where the ranks of `among` together count each element once, such as in
  // norms, the first copy counts.
  int copies(const GridShape& grid, Axes among) const;
  int copy(const GridShape& grid, int place, Axes among) const;
};

}  // namespace trireme::nn
