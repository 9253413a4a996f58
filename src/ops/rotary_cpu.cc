#include <cmath>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// Cosine and sine of each position and pair, times the amplitude.
struct Angles {
  Tensor table;  // (2, length, pairs)
  float *cosine, *sine;
};

Angles angles_of(Context& ctx, std::int64_t length, std::int64_t first_position,
                 const Rotation& rotation, bool inverse) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  const Tensor table = ctx.allocate({2, length, pairs}, DType::kF32, MemoryUse::kWorkspace);
  float* cosine = table.data<float>();
  float* sine = cosine + length * pairs;
  const double amplitude = rotation.amplitude;
  parallel_ranges(ctx, length, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(first_position + t) *
                             rotation.frequencies[static_cast<std::size_t>(i)];
        cosine[t * pairs + i] = static_cast<float>(amplitude * std::cos(angle));
        sine[t * pairs + i] =
            static_cast<float>(amplitude * (inverse ? -std::sin(angle) : std::sin(angle)));
      }
    }
  });
  return {table, cosine, sine};
}

float query_factor(const Rotation& rotation, std::int64_t position) {
  const auto periods = static_cast<double>(position / rotation.query_period);
  return static_cast<float>(1.0 + static_cast<double>(rotation.query_growth) * std::log1p(periods));
}

}  // namespace

void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, const Rotation& rotation, bool inverse) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  const Angles angles = angles_of(ctx, shape.length, first_position, rotation, inverse);
  const std::int64_t rotated = shape.heads + shape.kv_heads;
  const std::int64_t columns = rotated * shape.head_size;
  const ThreadRows stage(ctx, columns);
  parallel_ranges(ctx, shape.batch * shape.length, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * shape.row();
      const std::int64_t t = row % shape.length;
      const float* cosine = angles.cosine + t * pairs;
      const float* sine = angles.sine + t * pairs;
      float* values = write_place(qkv, at, stage.mine());
      read_fp32(qkv, at, columns, stage.mine());
      for (std::int64_t head = 0; head < rotated; ++head) {
        float* low = values + head * shape.head_size;
        if (rotation.adjacent) {
          kernels().elementwise.rotate_adjacent(low, cosine, sine, pairs);
        } else {
          kernels().elementwise.rotate(low, low + pairs, cosine, sine, pairs);
        }
      }
      if (rotation.query_growth != 0.0f) {
        kernels().elementwise.scale(values, query_factor(rotation, first_position + t),
                                    shape.heads * shape.head_size);
      }
      write_back(qkv, at, columns, values);
    }
  });
}

}  // namespace trireme::ops::cpu
