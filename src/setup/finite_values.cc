#include "trireme/setup/finite_values.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/parallel/host_pieces.h"
#include "trireme/setup/checkpoint_tensors.h"

namespace trireme {

void FiniteValues::look_at(const std::string& tensor, std::span<const float> values) {
  const auto finite = std::ranges::count_if(values, [](float v) { return std::isfinite(v); });
  if (finite == std::ssize(values)) return;
  if (first_.empty()) first_ = tensor;
  others_ += std::ssize(values) - finite;
}

std::string FiniteValues::fault(Communicator& comm) const {
  const auto all = comm.all_reduce_host(others_, ReduceOp::kSum);
  if (all == 0) return {};
  const int lowest = comm.all_reduce_host(others_ > 0 ? comm.rank() : comm.size(), ReduceOp::kMin);
  return fmt::format("{} NaN or infinite, the first in {}",
                     all == 1 ? "1 weight is" : fmt::format("{} weights are", all),
                     shown(comm.broadcast_text(first_, lowest)));
}

std::string fault_of_weights(ops::Context& ctx, const parallel::Stage& stage, Communicator& world) {
  FiniteValues values;
  for (const TensorSlice& slice : checkpoint_slices(stage, nullptr, /*owned_only=*/true)) {
    const Tensor flat = slice.local.reshape({slice.local.elements()});
    parallel::visit_on_host(ctx, flat, [&](std::int64_t /*first*/, std::span<const float> part) {
      values.look_at(slice.name, part);
    });
  }
  return values.fault(world);
}

}  // namespace trireme
