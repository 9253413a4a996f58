#include <algorithm>

#include "ops/device_ops.h"
#include "ops/gpu/view.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostPairs = 128;

// Rotation as a kernel gets it.
struct Turns {
  std::int64_t pairs, first_position;
  double frequencies[kMostPairs];
  double amplitude;
  bool inverse;
};

// cosine, sine (length, pairs), computed in double as on a CPU.
__global__ void __launch_bounds__(kThreads)
    rotary_table_kernel(float* cosine, float* sine, std::int64_t length, Turns turns) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= length * turns.pairs) return;
  const auto position = static_cast<double>(turns.first_position + at / turns.pairs);
  const double angle = position * turns.frequencies[at % turns.pairs];
  cosine[at] = static_cast<float>(turns.amplitude * cos(angle));
  sine[at] = static_cast<float>(turns.amplitude * (turns.inverse ? -sin(angle) : sin(angle)));
}

struct RotaryRows {
  std::int64_t rows, row, length, head_size, rotated;  // rotated: query and key heads
  std::int64_t pairs;
};

// A thread rotates a chunk of the lower channels of a head's pairs with the same chunk of the upper
// ones.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(View<T> qkv, const float* cosine, const float* sine, RotaryRows shape,
                  bool vector) {
  const std::int64_t chunks = (shape.pairs + kChunk - 1) / kChunk;  // per head
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= shape.rotated * chunks) return;
  const std::int64_t i = piece % chunks * kChunk;
  const std::int64_t column = piece / chunks * shape.head_size + i;
  const std::int64_t left = shape.pairs - i;
  for_chunk_rows(shape.rows, [&](std::int64_t row) {
    const std::int64_t at = row * shape.row + column;
    const std::int64_t entry = row % shape.length * shape.pairs + i;
    float low[kChunk], high[kChunk], c[kChunk], s[kChunk];
    qkv.load(at, left, vector, low);
    qkv.load(at + shape.pairs, left, vector, high);
    load_chunk(cosine + entry, left, vector, c);
    load_chunk(sine + entry, left, vector, s);
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
      const float a = low[k], b = high[k];
      low[k] = a * c[k] - b * s[k];
      high[k] = b * c[k] + a * s[k];
    }
    qkv.store(at, left, vector, low);
    qkv.store(at + shape.pairs, left, vector, high);
  });
}

// The same for pairs of adjacent channels: a thread has a chunk of a head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_adjacent_kernel(View<T> qkv, const float* cosine, const float* sine, RotaryRows shape,
                           bool vector) {
  const std::int64_t channels = 2 * shape.pairs;
  const std::int64_t chunks = (channels + kChunk - 1) / kChunk;  // per head
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (piece >= shape.rotated * chunks) return;
  const std::int64_t i = piece % chunks * kChunk;
  const std::int64_t column = piece / chunks * shape.head_size + i;
  const std::int64_t left = channels - i;
  for_chunk_rows(shape.rows, [&](std::int64_t row) {
    const std::int64_t at = row * shape.row + column;
    const std::int64_t entry = row % shape.length * shape.pairs + i / 2;
    float x[kChunk];
    qkv.load(at, left, vector, x);
#pragma unroll
    for (int k = 0; k < kChunk; k += 2) {
      if (k >= left) break;
      const float a = x[k], b = x[k + 1], c = cosine[entry + k / 2], s = sine[entry + k / 2];
      x[k] = a * c - b * s;
      x[k + 1] = b * c + a * s;
    }
    qkv.store(at, left, vector, x);
  });
}

struct Growth {
  std::int64_t length, row, columns, first_position, period;
  double growth;
};

// Multiplies the queries of a row by the factor of its position.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grow_queries_kernel(View<T> qkv, Growth of, std::int64_t rows, bool vector) {
  for_chunks(rows, of.columns, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    const std::int64_t periods = (of.first_position + row % of.length) / of.period;
    const auto factor = static_cast<float>(1.0 + of.growth * log1p(static_cast<double>(periods)));
    float x[kChunk];
    qkv.load(row * of.row + column, left, vector, x);
#pragma unroll
    for (float& value : x) value *= factor;
    qkv.store(row * of.row + column, left, vector, x);
  });
}

Turns turns_of(const Rotation& rotation, std::int64_t first_position, bool inverse) {
  Turns turns{};
  turns.pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  TRIREME_CHECK(turns.pairs <= kMostPairs, "rotary: more pairs than a GPU takes");
  turns.first_position = first_position;
  std::copy(rotation.frequencies.begin(), rotation.frequencies.end(), turns.frequencies);
  turns.amplitude = rotation.amplitude;
  turns.inverse = inverse;
  return turns;
}

}  // namespace

void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, const Rotation& rotation, bool inverse) {
  const Turns turns = turns_of(rotation, first_position, inverse);
  const std::int64_t entries = shape.length * turns.pairs;
  const Tensor table = table_of_rotary(ctx, shape, rotation);
  float* cosine = device_data<float>(table);
  float* sine = cosine + entries;
  launch(rotary_table_kernel, extent(blocks_for(entries, kThreads)), kThreads, 0, ctx.stream,
         cosine, sine, shape.length, turns);
  const RotaryRows rows = {shape.batch * shape.length,   shape.row(), shape.length, shape.head_size,
                           shape.heads + shape.kv_heads, turns.pairs};
  const std::int64_t of_head = rotation.adjacent ? 2 * turns.pairs : turns.pairs;
  const std::int64_t columns = rows.rotated * blocks_for(of_head, kChunk) * kChunk;
  const bool vector =
      turns.pairs % kChunk == 0 && shape.head_size % kChunk == 0 && vectors_fit({&qkv}, rows.row);
  with_type({&qkv}, [&](auto type) {
    using T = decltype(type);
    launch(rotation.adjacent ? rotary_adjacent_kernel<T> : rotary_kernel<T>,
           chunk_grid(rows.rows, columns), chunk_block(columns), 0, ctx.stream, View<T>(qkv),
           cosine, sine, rows, vector);
    if (rotation.query_growth == 0.0f) return;
    const Growth growth = {
        shape.length,   shape.row(),           shape.heads * shape.head_size,
        first_position, rotation.query_period, static_cast<double>(rotation.query_growth)};
    launch(grow_queries_kernel<T>, chunk_grid(rows.rows, growth.columns),
           chunk_block(growth.columns), 0, ctx.stream, View<T>(qkv), growth, rows.rows, vector);
  });
}

}  // namespace trireme::ops::gpu
