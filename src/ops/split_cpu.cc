#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {}  // namespace

void split(Context& ctx, const Tensor& x, const Tensor& high, const Tensor& low) {
  parallel_ranges(ctx, x.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.split(x.data<float>() + begin,
                                static_cast<std::uint16_t*>(high.raw()) + begin,
                                low.data<std::uint16_t>() + begin, end - begin);
  });
}

void join(Context& ctx, const Tensor& high, const Tensor& low, const Tensor& y) {
  parallel_ranges(ctx, y.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.join(static_cast<const std::uint16_t*>(high.raw()) + begin,
                               low.data<std::uint16_t>() + begin, y.data<float>() + begin,
                               end - begin);
  });
}

}  // namespace trireme::ops::cpu
