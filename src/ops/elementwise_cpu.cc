#include <algorithm>
#include <cstring>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// Calls body(begin, n) for ranges of at most kStageElements elements, on all threads.
template <class Body>
void for_stages(const Context& ctx, std::int64_t elements, const Body& body) {
  parallel_ranges(ctx, elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kStageElements) {
      body(at, std::min(kStageElements, end - at));
    }
  });
}

// Kernels of the forms y = f(a) and y = f(a, b).
template <class Kernel>
void unary(Context& ctx, const Tensor& x, const Tensor& y, const Kernel& kernel) {
  for_stages(ctx, x.elements(), [&](std::int64_t begin, std::int64_t n) {
    Stage in, out;
    const float* from = read_fp32(x, begin, n, in.values);
    float* to = write_place(y, begin, out.values);
    kernel(from, to, n);
    write_back(y, begin, n, to);
  });
}

template <class Kernel>
void binary(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y, const Kernel& kernel) {
  for_stages(ctx, a.elements(), [&](std::int64_t begin, std::int64_t n) {
    Stage in_a, in_b, out;
    const float* from_a = read_fp32(a, begin, n, in_a.values);
    const float* from_b = read_fp32(b, begin, n, in_b.values);
    float* to = write_place(y, begin, out.values);
    kernel(from_a, from_b, to, n);
    write_back(y, begin, n, to);
  });
}

// For types in which no arithmetic is done.
template <class T>
void fill_as(Context& ctx, const Tensor& x, float value) {
  on_this_thread(ctx, [&] { std::fill_n(x.data<T>(), x.elements(), static_cast<T>(value)); });
}

}  // namespace

void fill(Context& ctx, const Tensor& x, float value) {
  if (x.dtype() == DType::kF64) return fill_as<double>(ctx, x, value);
  if (x.dtype() == DType::kI64) return fill_as<std::int64_t>(ctx, x, value);
  if (x.dtype() == DType::kU16) return fill_as<std::uint16_t>(ctx, x, value);
  if (x.dtype() == DType::kU8) return fill_as<std::uint8_t>(ctx, x, value);
  for_stages(ctx, x.elements(), [&](std::int64_t begin, std::int64_t n) {
    Stage stage;
    float* to = write_place(x, begin, stage.values);
    std::fill_n(to, n, value);
    write_back(x, begin, n, to);
  });
}

void cast(Context& ctx, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) {
    const std::size_t size = size_of(x.dtype());
    for_stages(ctx, x.elements(), [&](std::int64_t begin, std::int64_t n) {
      const std::size_t offset = static_cast<std::size_t>(begin) * size;
      std::memmove(static_cast<std::byte*>(y.raw()) + offset,
                   static_cast<const std::byte*>(x.raw()) + offset,
                   static_cast<std::size_t>(n) * size);
    });
    return;
  }
  for_stages(ctx, x.elements(), [&](std::int64_t begin, std::int64_t n) {
    Stage stage;
    write_back(y, begin, n, read_fp32(x, begin, n, write_place(y, begin, stage.values)));
  });
}

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y) {
  binary(ctx, a, b, y, kernels().elementwise.add);
}

void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y) {
  binary(ctx, x, y, y, [&](const float* from, const float* old, float* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = old[i] + factor * from[i];
  });
}

void scale(Context& ctx, const Tensor& x, float factor) {
  for_stages(ctx, x.elements(), [&](std::int64_t begin, std::int64_t n) {
    Stage stage;
    float* values = write_place(x, begin, stage.values);
    read_fp32(x, begin, n, stage.values);
    kernels().elementwise.scale(values, factor, n);
    write_back(x, begin, n, values);
  });
}

void add_bias(Context& ctx, const Tensor& x, const Tensor& bias) {
  const std::int64_t columns = x.shape()[-1];
  const Tensor bias32 = as_fp32(ctx, bias);
  const float* b = bias32.data<float>();
  parallel_ranges(ctx, x.shape().rows(), row_grain(columns),
                  [&](std::int64_t first, std::int64_t last) {
                    Stage stage;
                    for (std::int64_t row = first; row < last; ++row) {
                      for (std::int64_t column = 0; column < columns; column += kStageElements) {
                        const std::int64_t n = std::min(kStageElements, columns - column);
                        const std::int64_t begin = row * columns + column;
                        float* values = write_place(x, begin, stage.values);
                        read_fp32(x, begin, n, stage.values);
                        kernels().elementwise.add(values, b + column, values, n);
                        write_back(x, begin, n, values);
                      }
                    }
                  });
}

// Sums each part of the rows by itself, then adds the parts in order.
void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums) {
  const std::int64_t columns = x.shape()[-1];
  const std::int64_t rows = x.shape().rows();
  const std::int64_t grain = rows_per_part(rows);
  const std::int64_t count = (rows + grain - 1) / grain;
  const Tensor parts = ctx.allocate({count, columns}, DType::kF32, MemoryUse::kWorkspace);
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t last) {
    Stage stage;
    float* part = parts.data<float>() + first / grain * columns;
    std::fill_n(part, columns, 0.0f);
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t column = 0; column < columns; column += kStageElements) {
        const std::int64_t n = std::min(kStageElements, columns - column);
        const float* values = read_fp32(x, row * columns + column, n, stage.values);
        kernels().elementwise.add(part + column, values, part + column, n);
      }
    }
  });
  add_parts(ctx, parts.data<float>(), count, columns, sums.data<float>());
}

void gelu(Context& ctx, const Tensor& x, const Tensor& y) {
  unary(ctx, x, y, kernels().elementwise.gelu);
}

void gelu_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  binary(ctx, x, dy, dx, kernels().elementwise.gelu_backward);
}

void gelu_erf(Context& ctx, const Tensor& x, const Tensor& y) {
  unary(ctx, x, y, kernels().elementwise.gelu_erf);
}

void gelu_erf_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  binary(ctx, x, dy, dx, kernels().elementwise.gelu_erf_backward);
}

void clamp(Context& ctx, const Tensor& x, const Clamp& range, const Tensor& y) {
  unary(ctx, x, y, [&](const float* from, float* to, std::int64_t n) {
    kernels().elementwise.clamp(from, range.low, range.high, to, n);
  });
}

void clamp_backward(Context& ctx, const Tensor& y, const Tensor& dy, const Clamp& range,
                    const Tensor& dx) {
  binary(ctx, y, dy, dx, [&](const float* out, const float* d, float* to, std::int64_t n) {
    kernels().elementwise.clamp_backward(out, d, range.low, range.high, to, n);
  });
}

namespace {

// y = act(gate) * up, by rows of gate and up: kernel(gate, up, y, n).
template <class Kernel>
void gated(Context& ctx, const Tensor& gate_up, const Tensor& y, const Kernel& kernel) {
  const std::int64_t width = y.shape()[-1];
  parallel_ranges(ctx, y.shape().rows(), row_grain(width),
                  [&](std::int64_t first, std::int64_t last) {
                    Stage in_gate, in_up, out;
                    for (std::int64_t row = first; row < last; ++row) {
                      for (std::int64_t column = 0; column < width; column += kStageElements) {
                        const std::int64_t n = std::min(kStageElements, width - column);
                        const std::int64_t at = 2 * row * width + column;
                        const float* gate = read_fp32(gate_up, at, n, in_gate.values);
                        const float* up = read_fp32(gate_up, at + width, n, in_up.values);
                        float* to = write_place(y, row * width + column, out.values);
                        kernel(gate, up, to, n);
                        write_back(y, row * width + column, n, to);
                      }
                    }
                  });
}

// The gradients of both: kernel(gate, up, dy, dgate, dup, n).
template <class Kernel>
void gated_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up,
                    const Kernel& kernel) {
  const std::int64_t width = dy.shape()[-1];
  parallel_ranges(ctx, dy.shape().rows(), row_grain(width),
                  [&](std::int64_t first, std::int64_t last) {
                    Stage in_gate, in_up, in_dy, out_gate, out_up;
                    for (std::int64_t row = first; row < last; ++row) {
                      for (std::int64_t column = 0; column < width; column += kStageElements) {
                        const std::int64_t n = std::min(kStageElements, width - column);
                        const std::int64_t at = 2 * row * width + column;
                        const float* gate = read_fp32(gate_up, at, n, in_gate.values);
                        const float* up = read_fp32(gate_up, at + width, n, in_up.values);
                        const float* d = read_fp32(dy, row * width + column, n, in_dy.values);
                        float* dgate = write_place(dgate_up, at, out_gate.values);
                        float* dup = write_place(dgate_up, at + width, out_up.values);
                        kernel(gate, up, d, dgate, dup, n);
                        write_back(dgate_up, at, n, dgate);
                        write_back(dgate_up, at + width, n, dup);
                      }
                    }
                  });
}

}  // namespace

void swiglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  gated(ctx, gate_up, y, kernels().elementwise.swiglu);
}

void swiglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy,
                     const Tensor& dgate_up) {
  gated_backward(ctx, gate_up, dy, dgate_up, kernels().elementwise.swiglu_backward);
}

void geglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  gated(ctx, gate_up, y, kernels().elementwise.geglu);
}

void geglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up) {
  gated_backward(ctx, gate_up, dy, dgate_up, kernels().elementwise.geglu_backward);
}

void dropout(Context& ctx, const Tensor& x, float rate, const DropoutPlace& place,
             const Tensor& y) {
  const std::int64_t columns = x.shape()[-1];
  const auto* samples = place.samples.data<std::int64_t>();
  const std::uint64_t key = ctx.step_state->random_key;
  const ThreadRows in(ctx, columns), out(ctx, columns);
  parallel_ranges(
      ctx, x.shape().rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          const std::int64_t at = place.first_row + row;
          const auto sample = static_cast<std::uint64_t>(samples[at / place.length]);
          // Sample numbers above 2^32: the upper half goes into the layer number.
          const DropoutRow where = {key, static_cast<std::uint32_t>(at % place.length),
                                    static_cast<std::uint32_t>(sample),
                                    place.layer ^ static_cast<std::uint32_t>(sample >> 32) << 16,
                                    rate};
          const float* from = read_fp32(x, row * columns, columns, in.mine());
          float* to = write_place(y, row * columns, out.mine());
          kernels().elementwise.dropout(where, from, to, columns);
          write_back(y, row * columns, columns, to);
        }
      });
}

}  // namespace trireme::ops::cpu
