#include <cmath>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {

void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, float theta, bool inverse) {
  const std::int64_t half = shape.head_size / 2;
  const Tensor table = ctx.allocate({2, shape.length, half}, DType::kF32, MemoryUse::kWorkspace);
  float* cosine = table.data<float>();
  float* sine = cosine + shape.length * half;
  parallel_ranges(ctx, shape.length, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(static_cast<double>(theta),
                     -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_size));
        const double angle = static_cast<double>(first_position + t) * frequency;
        cosine[t * half + i] = static_cast<float>(std::cos(angle));
        sine[t * half + i] = static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle));
      }
    }
  });
  const std::int64_t rotated = shape.heads + shape.kv_heads;
  const std::int64_t columns = rotated * shape.head_size;
  const ThreadRows stage(ctx, columns);
  parallel_ranges(ctx, shape.batch * shape.length, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * shape.row();
      const std::int64_t t = row % shape.length;
      float* values = write_place(qkv, at, stage.mine());
      read_fp32(qkv, at, columns, stage.mine());
      for (std::int64_t head = 0; head < rotated; ++head) {
        float* low = values + head * shape.head_size;
        kernels().elementwise.rotate(low, low + half, cosine + t * half, sine + t * half, half);
      }
      write_back(qkv, at, columns, values);
    }
  });
}

}  // namespace trireme::ops::cpu
