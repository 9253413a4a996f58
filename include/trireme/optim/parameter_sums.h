// Sums over the elements of parameters that lie on several ranks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/parameter.h"

namespace trireme::optim {

class ParameterSums {
 public:
  // Collective over the ranks of a stage. `name` is that of the communicator.
  ParameterSums(const ProcessGrid& grid, std::string name);

  // Whether the elements that this rank holds of the parameter count: of ranks with the same ones,
  // those of the first do.
  bool counts(const nn::Parameter& parameter) const;
  // Collective over the ranks whose parts make whole parameters. Adds up what they have, in place.
  void add_up(ops::Context& ctx, const Tensor& sums) const;

  // Elements of a parameter on this rank, or numbers that belong to them.
  struct Part {
    const nn::Parameter* parameter;
    Tensor x;             // (n) fp32
    std::int64_t first;   // x[0]'s element of the memory of the parameter's group
    std::int64_t number;  // which of the sums takes their squares
  };
  // Collective over the same ranks, with equally many sums on each. Sets sums (n) fp64 to the sums
  // of the squares of all ranks' parts. Every rank gets the same bits, whichever parts the ranks
  // hold.
  void take_squares(ops::Context& ctx, std::span<const Part> parts, const Tensor& sums) const;

 private:
  GridShape grid_;
  int place_;  // of this rank
  std::shared_ptr<Communicator> comm_;
};

}  // namespace trireme::optim
