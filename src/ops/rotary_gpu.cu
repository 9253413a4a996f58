#include "ops/device_ops.h"
#include "ops/gpu/view.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;

// cosine, sine (length, half), computed in double as on a CPU.
__global__ void __launch_bounds__(kThreads)
    rotary_table_kernel(float* cosine, float* sine, std::int64_t length, std::int64_t half,
                        std::int64_t first_position, double theta, bool inverse) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= length * half) return;
  const std::int64_t i = at % half;
  const double frequency =
      pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
  const double angle = static_cast<double>(first_position + at / half) * frequency;
  cosine[at] = static_cast<float>(cos(angle));
  sine[at] = static_cast<float>(inverse ? -sin(angle) : sin(angle));
}

struct RotaryRows {
  std::int64_t rows, row, length, head_size, rotated;  // rotated: query and key heads
};

// A thread rotates a chunk of the lower half of a head with the same chunk of the upper half.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(View<T> qkv, const float* cosine, const float* sine, RotaryRows shape,
                  bool vector) {
  const std::int64_t half = shape.head_size / 2;
  const std::int64_t chunks = (half + kChunk - 1) / kChunk;  // per head
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= shape.rotated * chunks) return;
  const std::int64_t i = piece % chunks * kChunk;
  const std::int64_t column = piece / chunks * shape.head_size + i;
  const std::int64_t left = half - i;
  for_chunk_rows(shape.rows, [&](std::int64_t row) {
    const std::int64_t at = row * shape.row + column;
    const std::int64_t entry = row % shape.length * half + i;
    float low[kChunk], high[kChunk], c[kChunk], s[kChunk];
    qkv.load(at, left, vector, low);
    qkv.load(at + half, left, vector, high);
    load_chunk(cosine + entry, left, vector, c);
    load_chunk(sine + entry, left, vector, s);
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
      const float a = low[k], b = high[k];
      low[k] = a * c[k] - b * s[k];
      high[k] = b * c[k] + a * s[k];
    }
    qkv.store(at, left, vector, low);
    qkv.store(at + half, left, vector, high);
  });
}

}  // namespace

void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, float theta, bool inverse) {
  const std::int64_t half = shape.head_size / 2;
  const std::int64_t entries = shape.length * half;
  const Tensor table = table_of_rotary(ctx, shape);
  float* cosine = device_data<float>(table);
  float* sine = cosine + entries;
  launch(rotary_table_kernel, extent(blocks_for(entries, kThreads)), kThreads, 0, ctx.stream,
         cosine, sine, shape.length, half, first_position, static_cast<double>(theta), inverse);
  const RotaryRows rows = {shape.batch * shape.length, shape.row(), shape.length, shape.head_size,
                           shape.heads + shape.kv_heads};
  const std::int64_t columns = rows.rotated * blocks_for(half, kChunk) * kChunk;
  with_type({&qkv}, [&](auto type) {
    using T = decltype(type);
    launch(rotary_kernel<T>, chunk_grid(rows.rows, columns), chunk_block(columns), 0, ctx.stream,
           View<T>(qkv), cosine, sine, rows, half % kChunk == 0 && vectors_fit({&qkv}, rows.row));
  });
}

}  // namespace trireme::ops::gpu
