#include "trireme/setup/finite_values.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/ops/elementwise.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

constexpr std::int64_t kOnHostAtOnce = std::int64_t{1} << 22;  // elements

}  // namespace

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

std::string fault_of_weights(ops::Context& ctx, const parallel::Stage& stage) {
  FiniteValues values;
  for (const TensorSlice& slice : checkpoint_slices(stage, nullptr, /*owned_only=*/true)) {
    const Tensor flat = slice.local.reshape({slice.local.elements()});
    for (std::int64_t begin = 0; begin < flat.elements(); begin += kOnHostAtOnce) {
      Tensor part = flat.flat_range(begin, std::min(begin + kOnHostAtOnce, flat.elements()));
      if (part.dtype() != DType::kF32) {
        const Tensor wide = ctx.allocate(part.shape(), DType::kF32, MemoryUse::kWorkspace);
        ops::cast(ctx, part, wide);
        part = wide;
      }
      if (part.device().kind != DeviceKind::kCpu) {
        const Tensor host = ctx.allocate_host(part.shape(), part.dtype(), MemoryUse::kWorkspace);
        copy(part, host, ctx.stream);
        ctx.stream.synchronize();
        part = host;
      }
      values.look_at(slice.name, {part.data<float>(), static_cast<std::size_t>(part.elements())});
    }
  }
  return values.fault(stage.grid().world());
}

}  // namespace trireme
