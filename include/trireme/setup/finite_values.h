// Whether weights are finite: from others nothing can be learned, and nothing can be computed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/ops/context.h"
#include "trireme/parallel/stage.h"

namespace trireme {

// Counts the values among those of all ranks that are NaN or infinite.
class FiniteValues {
 public:
  // Call it for each value on one rank alone.
  void look_at(const std::string& tensor, std::span<const float> values);

  // Collective over comm. "2 weights are NaN or infinite, the first in TENSOR", of the lowest rank
  // that has some; empty if all are finite.
  std::string fault(Communicator& comm) const;

 private:
  std::int64_t others_ = 0;
  std::string first_;  // tensor
};

// Collective over `world`: the stage's grid, or all islands. The same of a model's parameters and
// states.
std::string fault_of_weights(ops::Context& ctx, const parallel::Stage& stage, Communicator& world);

}  // namespace trireme
