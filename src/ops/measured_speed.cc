#include "trireme/ops/measured_speed.h"

#include <algorithm>
#include <cstdint>

#include "trireme/base/clock.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"

namespace trireme::ops {

double measured_speed(Context& ctx) {
  constexpr double kSeconds = 0.2;
  constexpr int kRounds = 3;
  const std::int64_t size = ctx.device.kind == DeviceKind::kCpu ? 384 : 4096;
  const Tensor a = ctx.allocate({size, size}, DType::kF32);
  const Tensor b = ctx.allocate({size, size}, DType::kF32);
  const Tensor c = ctx.allocate({size, size}, DType::kF32);
  fill(ctx, a, 1.0f);
  fill(ctx, b, 1.0f);
  const double of_product = 2.0 * static_cast<double>(size * size * size);
  double most = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    double products = 0.0;
    do {
      matmul(ctx, a, Transpose::kNo, b, Transpose::kNo, 0.0f, c);
      ctx.stream.synchronize();
      ++products;
    } while (watch.seconds() < kSeconds);
    most = std::max(most, of_product * products / watch.seconds());
  }
  return most;
}

}  // namespace trireme::ops
