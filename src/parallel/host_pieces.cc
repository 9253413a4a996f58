#include "trireme/parallel/host_pieces.h"

#include <algorithm>
#include <cstddef>

#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::parallel {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements on the host at a time

}  // namespace

void visit_on_host(ops::Context& ctx, const Tensor& flat,
                   const std::function<void(std::int64_t first, std::span<const float>)>& visit) {
  for (std::int64_t begin = 0; begin < flat.elements(); begin += kPiece) {
    Tensor part = flat.flat_range(begin, std::min(begin + kPiece, flat.elements()));
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
    visit(begin, {part.data<float>(), static_cast<std::size_t>(part.elements())});
  }
}

}  // namespace trireme::parallel
