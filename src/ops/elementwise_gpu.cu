// Bound by memory: each element is read and written once, 16 bytes per thread.
#include "trireme/base/philox.h"

#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/norm_teams.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

// y = op(x) or y = op(a, b). A thread reads its inputs before it writes, so y may be an input.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    unary_kernel(Op op, View<T> x, View<T> y, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  if (at >= elements) return;
  float values[kChunk];
  x.load(at, elements - at, vector, values);
#pragma unroll
  for (float& value : values) value = op(value);
  y.store(at, elements - at, vector, values);
}

template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    binary_kernel(Op op, View<T> a, View<T> b, View<T> y, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  if (at >= elements) return;
  float left[kChunk], right[kChunk];
  a.load(at, elements - at, vector, left);
  b.load(at, elements - at, vector, right);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) left[i] = op(left[i], right[i]);
  y.store(at, elements - at, vector, left);
}

template <class Op>
void unary(Context& ctx, Op op, const Tensor& x, const Tensor& y) {
  with_type({&x, &y}, [&](auto type) {
    using T = decltype(type);
    launch(unary_kernel<Op, T>, blocks_of_chunks(x.elements()), kThreads, 0, ctx.stream, op,
           View<T>(x), View<T>(y), x.elements(), vectors_fit({&x, &y}, kChunk));
  });
}

template <class Op>
void binary(Context& ctx, Op op, const Tensor& a, const Tensor& b, const Tensor& y) {
  with_type({&a, &b, &y}, [&](auto type) {
    using T = decltype(type);
    launch(binary_kernel<Op, T>, blocks_of_chunks(a.elements()), kThreads, 0, ctx.stream, op,
           View<T>(a), View<T>(b), View<T>(y), a.elements(), vectors_fit({&a, &b, &y}, kChunk));
  });
}

struct Identity {
  __device__ float operator()(float x) const { return x; }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct AddScaled {
  float factor;
  __device__ float operator()(float x, float y) const { return y + factor * x; }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// sigmoid(x) and 1 - sigmoid(x), both without cancellation.
struct Sigmoid {
  float value, rest;
};
__device__ inline Sigmoid sigmoid(float x) {
  float e = __expf(-x);
  e = e > 1e30f ? 1e30f : e;  // infinity * 0 would be NaN
  const float value = __fdividef(1.0f, 1.0f + e);
  return {value, e * value};
}

constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

// (1 + tanh(u)) / 2 = sigmoid(2 u): no cancellation where tanh(u) nears -1.
struct Gelu {
  __device__ float operator()(float x) const {
    return x * sigmoid(2.0f * kGeluScale * (x + kGeluCubic * x * x * x)).value;
  }
};
struct GeluBackward {
  __device__ float operator()(float x, float dy) const {
    const Sigmoid s = sigmoid(2.0f * kGeluScale * (x + kGeluCubic * x * x * x));
    const float du = kGeluScale * (1.0f + 3.0f * kGeluCubic * x * x);
    return dy * (s.value + 2.0f * x * s.value * s.rest * du);
  }
};

// The normal distribution, from the error function; no cancellation where it nears 0.
__device__ inline float normal_below(float x) {
  return 0.5f * erfcf(-0.707106781f * x);
}
struct GeluErf {
  __device__ float operator()(float x) const { return x * normal_below(x); }
};
struct GeluErfBackward {
  __device__ float operator()(float x, float dy) const {
    return dy * (normal_below(x) + x * 0.398942280f * expf(-0.5f * x * x));
  }
};

// Comparisons in this form let NaN through.
struct Cut {
  Clamp range;
  __device__ float operator()(float x) const {
    const float above = x < range.low ? range.low : x;
    return above > range.high ? range.high : above;
  }
};
struct CutBackward {
  Clamp range;
  __device__ float operator()(float y, float dy) const {
    return y <= range.low || y >= range.high ? 0.0f : dy;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) fill_wide_kernel(T* x, std::int64_t elements, T value) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) x[at] = value;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(View<T> x, std::int64_t elements, float value, bool vector) {
  const std::int64_t at = chunk_of_thread();
  if (at >= elements) return;
  float values[kChunk];
#pragma unroll
  for (float& v : values) v = value;
  x.store(at, elements - at, vector, values);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(View<T> x, View<Any> bias, std::int64_t rows, std::int64_t columns,
                    bool vector) {
  const std::int64_t column = chunk_column();
  const std::int64_t left = columns - column;
  if (left <= 0) return;
  float shift[kChunk];
  bias.load(column, left, vector, shift);
  for_chunk_rows(rows, [&](std::int64_t row) {
    float values[kChunk];
    x.load(row * columns + column, left, vector, values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] += shift[i];
    x.store(row * columns + column, left, vector, values);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads, 6)
    column_sums_of_chunks_kernel(const T* x, std::int64_t rows, std::int64_t columns,
                                 std::int64_t per_part, float* parts) {
  constexpr int kAtOnce = 8 / sizeof(T);
  sum_part_of_chunks<kAtOnce>(x, rows, columns, per_part, parts);
}
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(View<Any> x, std::int64_t rows, std::int64_t columns, std::int64_t per_part,
                       float* parts, bool vector) {
  sum_part<1>(rows, columns, per_part, parts,
              [&](std::int64_t row, std::int64_t column, float(&values)[1][kChunk]) {
                x.load(row * columns + column, columns - column, vector, values[0]);
              });
}

// What gated MLPs do with a gate g, an up u and the gradient d of their product: backward replaces
// g and u by their gradients.
struct Silu {
  __device__ float forward(float g, float u) const { return g * (sigmoid(g).value * u); }
  __device__ void backward(float d, float& g, float& u) const {
    const Sigmoid s = sigmoid(g);
    const float dg = d * u * (s.value + g * s.value * s.rest);
    u = d * g * s.value;
    g = dg;
  }
};
struct GeluGate {
  __device__ float forward(float g, float u) const { return Gelu()(g) * u; }
  __device__ void backward(float d, float& g, float& u) const {
    const float dg = GeluBackward()(g, d * u);
    u = d * Gelu()(g);
    g = dg;
  }
};

template <class Gate, class T>
__global__ void __launch_bounds__(kThreads)
    gated_kernel(Gate act, View<T> gate_up, View<T> y, std::int64_t rows, std::int64_t width,
                 bool vector) {
  for_chunks(rows, width, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float gate[kChunk], up[kChunk];
    gate_up.load(2 * row * width + column, left, vector, gate);
    gate_up.load((2 * row + 1) * width + column, left, vector, up);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) gate[i] = act.forward(gate[i], up[i]);
    y.store(row * width + column, left, vector, gate);
  });
}

template <class Gate, class T>
__global__ void __launch_bounds__(kThreads)
    gated_backward_kernel(Gate act, View<T> gate_up, View<T> dy, View<T> dgate_up,
                          std::int64_t rows, std::int64_t width, bool vector) {
  for_chunks(rows, width, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float gate[kChunk], up[kChunk], d[kChunk];
    gate_up.load(2 * row * width + column, left, vector, gate);
    gate_up.load((2 * row + 1) * width + column, left, vector, up);
    dy.load(row * width + column, left, vector, d);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) act.backward(d[i], gate[i], up[i]);
    dgate_up.store(2 * row * width + column, left, vector, gate);
    dgate_up.store((2 * row + 1) * width + column, left, vector, up);
  });
}

template <class Gate>
void gated(Context& ctx, Gate act, const Tensor& gate_up, const Tensor& y) {
  const std::int64_t rows = y.shape()[0], width = y.shape()[1];
  with_type({&gate_up, &y}, [&](auto type) {
    using T = decltype(type);
    launch(gated_kernel<Gate, T>, chunk_grid(rows, width), chunk_block(width), 0, ctx.stream, act,
           View<T>(gate_up), View<T>(y), rows, width, vectors_fit({&gate_up, &y}, width));
  });
}

template <class Gate>
void gated_backward(Context& ctx, Gate act, const Tensor& gate_up, const Tensor& dy,
                    const Tensor& dgate_up) {
  const std::int64_t rows = dy.shape()[0], width = dy.shape()[1];
  with_type({&gate_up, &dy, &dgate_up}, [&](auto type) {
    using T = decltype(type);
    launch(gated_backward_kernel<Gate, T>, chunk_grid(rows, width), chunk_block(width), 0,
           ctx.stream, act, View<T>(gate_up), View<T>(dy), View<T>(dgate_up), rows, width,
           vectors_fit({&gate_up, &dy, &dgate_up}, width));
  });
}

struct DropoutRows {
  std::uint32_t layer;
  std::int64_t first_row, length;
  const std::int64_t* samples;
  float rate, kept;
};

// The eight factors of a chunk: two draws of Philox.
__device__ inline void dropout_factors(const DropoutRows& place, std::uint64_t key,
                                       std::int64_t row, std::int64_t column,
                                       float (&factors)[kChunk]) {
  const std::int64_t at = place.first_row + row;
  const auto sample = static_cast<std::uint64_t>(place.samples[at / place.length]);
  const auto position = static_cast<std::uint32_t>(at % place.length);
  const std::uint32_t layer = place.layer ^ static_cast<std::uint32_t>(sample >> 32) << 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Philox4 draw = philox4x32({static_cast<std::uint32_t>(column / 4 + half), position,
                                     static_cast<std::uint32_t>(sample), layer},
                                    key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      factors[4 * half + i] =
          philox_uniform(draw[static_cast<std::size_t>(i)]) > place.rate ? place.kept : 0.0f;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(View<T> x, View<T> y, DropoutRows place, const StepState* state,
                   std::int64_t rows, std::int64_t columns, bool vector) {
  const std::uint64_t key = state->random_key;
  for_chunks(rows, columns, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float values[kChunk], factors[kChunk];
    x.load(row * columns + column, left, vector, values);
    dropout_factors(place, key, row, column, factors);
    // A dropped element is 0 even if it was not finite.
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] = factors[i] == 0.0f ? 0.0f : values[i] * factors[i];
    }
    y.store(row * columns + column, left, vector, values);
  });
}

// For types in which no arithmetic is done.
template <class T>
void fill_as(Context& ctx, const Tensor& x, float value) {
  launch(fill_wide_kernel<T>, extent(blocks_for(x.elements(), kThreads)), kThreads, 0, ctx.stream,
         device_data<T>(x), x.elements(), static_cast<T>(value));
}

}  // namespace

void fill(Context& ctx, const Tensor& x, float value) {
  const std::int64_t elements = x.elements();
  if (x.dtype() == DType::kF64) return fill_as<double>(ctx, x, value);
  if (x.dtype() == DType::kI64) return fill_as<std::int64_t>(ctx, x, value);
  if (x.dtype() == DType::kU16) return fill_as<std::uint16_t>(ctx, x, value);
  if (x.dtype() == DType::kU8) return fill_as<std::uint8_t>(ctx, x, value);
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    launch(fill_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, View<T>(x),
           elements, value, vectors_fit({&x}, kChunk));
  });
}

void cast(Context& ctx, const Tensor& x, const Tensor& y) {
  unary(ctx, Identity(), x, y);
}

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y) {
  binary(ctx, Add(), a, b, y);
}

void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y) {
  binary(ctx, AddScaled{factor}, x, y, y);
}

void scale(Context& ctx, const Tensor& x, float factor) {
  unary(ctx, Scale{factor}, x, x);
}

void add_bias(Context& ctx, const Tensor& x, const Tensor& bias) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    launch(add_bias_kernel<T>, chunk_grid(rows, columns), chunk_block(columns), 0, ctx.stream,
           View<T>(x), View<Any>(bias), rows, columns, vectors_fit({&x, &bias}, columns));
  });
}

void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const std::int64_t per_part = rows_of_part(rows), count = blocks_for(rows, per_part);
  if (count == 0) return;
  const Tensor parts = parts_of_row_sums(ctx, 1, rows, columns);
  const dim3 grid = part_grid(columns, count), block = NormTeams::block_of_sums(columns);
  float* const sums_of_parts = device_data<float>(parts);
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, Any>) {
      if (vectors_fit({&x}, columns)) {
        return launch(column_sums_of_chunks_kernel<T>, grid, block, 0, ctx.stream,
                      device_data<T>(x), rows, columns, per_part, sums_of_parts);
      }
    }
    launch(column_sums_kernel, grid, block, 0, ctx.stream, View<Any>(x), rows, columns, per_part,
           sums_of_parts, false);
  });
  add_parts(ctx.stream, device_data<float>(parts), count, columns, device_data<float>(sums));
}

void gelu(Context& ctx, const Tensor& x, const Tensor& y) {
  unary(ctx, Gelu(), x, y);
}

void gelu_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  binary(ctx, GeluBackward(), x, dy, dx);
}

void gelu_erf(Context& ctx, const Tensor& x, const Tensor& y) {
  unary(ctx, GeluErf(), x, y);
}

void gelu_erf_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  binary(ctx, GeluErfBackward(), x, dy, dx);
}

void clamp(Context& ctx, const Tensor& x, const Clamp& range, const Tensor& y) {
  unary(ctx, Cut{range}, x, y);
}

void clamp_backward(Context& ctx, const Tensor& y, const Tensor& dy, const Clamp& range,
                    const Tensor& dx) {
  binary(ctx, CutBackward{range}, y, dy, dx);
}

void swiglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  gated(ctx, Silu(), gate_up, y);
}

void swiglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy,
                     const Tensor& dgate_up) {
  gated_backward(ctx, Silu(), gate_up, dy, dgate_up);
}

void geglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  gated(ctx, GeluGate(), gate_up, y);
}

void geglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up) {
  gated_backward(ctx, GeluGate(), gate_up, dy, dgate_up);
}

void dropout(Context& ctx, const Tensor& x, float rate, const DropoutPlace& place,
             const Tensor& y) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const DropoutRows where = {place.layer,  place.first_row,
                             place.length, device_data<std::int64_t>(place.samples),
                             rate,         1.0f / (1.0f - rate)};
  with_type({&x, &y}, [&](auto type) {
    using T = decltype(type);
    launch(dropout_kernel<T>, chunk_grid(rows, columns), chunk_block(columns), 0, ctx.stream,
           View<T>(x), View<T>(y), where, static_cast<const StepState*>(ctx.step_state.get()), rows,
           columns, vectors_fit({&x, &y}, columns));
  });
}

}  // namespace trireme::ops::gpu
