// Means over the channels of heads: a warp takes a head of a row, or a block all heads of a row.
#include "trireme/ops/head_norm.h"

#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;

// HeadNorm as kernels get it.
struct Groups {
  std::int64_t rows, row, groups, heads, kv_heads, head_size;
  bool whole;
  double query_width, key_width;
  float key_share, epsilon, query_plus, key_plus;
  View<Any> query, key;

  __device__ bool is_query(std::int64_t group) const { return whole ? group == 0 : group < heads; }
  __device__ std::int64_t begin(std::int64_t group) const {
    return group * (whole ? heads : 1) * head_size;
  }
  __device__ std::int64_t channels(std::int64_t group) const {
    return (!whole ? 1 : group == 0 ? heads : kv_heads) * head_size;
  }
  __device__ std::int64_t group_of(std::int64_t column) const {
    return whole ? (column < heads * head_size ? 0 : 1) : column / head_size;
  }
  __device__ float factor(std::int64_t group, std::int64_t channel) const {
    return is_query(group) ? query.at(channel) + query_plus : key.at(channel) + key_plus;
  }
  __device__ double width(std::int64_t group) const {
    return is_query(group) ? query_width : key_width;
  }
  __device__ float share(std::int64_t group) const { return is_query(group) ? 1.0f : key_share; }
  __device__ float rstd(std::int64_t group, float squares) const {
    return static_cast<float>(
        1.0 / sqrt(static_cast<double>(squares) / width(group) + static_cast<double>(epsilon)));
  }
};

Groups groups_of(const HeadNorm& n) {
  return {n.rows(),
          n.shape.row(),
          n.groups(),
          n.shape.heads,
          n.shape.kv_heads,
          n.shape.head_size,
          n.whole,
          static_cast<double>(n.query_width),
          static_cast<double>(n.key_width),
          n.key_share,
          n.epsilon,
          n.query.plus,
          n.key.plus,
          View<Any>(n.query.weight),
          View<Any>(n.key.weight)};
}

// sums (rows, groups) = the sums of x^2 times the share, or, with kDots, of dy * factor * x.
template <class T, int kWarps, bool kDots>
__global__ void __launch_bounds__(kThreads)
    group_sums_kernel(Groups of, View<T> x, View<T> dy, float* sums) {
  constexpr int kTeam = 32 * kWarps;
  const int rank = static_cast<int>(threadIdx.x) % kTeam;
  const std::int64_t number =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / kTeam) + threadIdx.x / kTeam;
  if (number >= of.rows * of.groups) return;  // the same in all threads of a team
  const std::int64_t row = number / of.groups, group = number % of.groups;
  const std::int64_t begin = row * of.row + of.begin(group);
  float sum = 0.0f;
  for (std::int64_t i = rank; i < of.channels(group); i += kTeam) {
    const float value = x.at(begin + i);
    sum += kDots ? dy.at(begin + i) * of.factor(group, i) * value : value * value;
  }
  sum = block_sum<kWarps>(sum);
  if (rank == 0) sums[number] = kDots ? sum : sum * of.share(group);
}

template <bool kDots>
void group_sums(Context& ctx, const HeadNorm& norm, const Tensor& x, const Tensor& dy,
                const Tensor& sums) {
  const Groups of = groups_of(norm);
  const std::int64_t teams = of.rows * of.groups;
  with_type({&x, &dy}, [&](auto type) {
    using T = decltype(type);
    if (norm.whole) {
      launch(group_sums_kernel<T, kThreads / 32, kDots>, extent(teams), kThreads, 0, ctx.stream, of,
             View<T>(x), View<T>(dy), device_data<float>(sums));
    } else {
      launch(group_sums_kernel<T, 1, kDots>, extent(blocks_for(teams, kThreads / 32)), kThreads, 0,
             ctx.stream, of, View<T>(x), View<T>(dy), device_data<float>(sums));
    }
  });
}

// y = x * rstd * factor; values are copied.
template <class T>
__global__ void __launch_bounds__(kThreads)
    head_norm_kernel(Groups of, View<T> x, const float* squares, View<T> y, bool vector) {
  const std::int64_t normed = (of.heads + of.kv_heads) * of.head_size;
  for_chunks(of.rows, of.row, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float values[kChunk];
    x.load(row * of.row + column, left, vector, values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= left || column + i >= normed) break;
      const std::int64_t group = of.group_of(column + i);
      const float rstd = of.rstd(group, squares[row * of.groups + group]);
      values[i] = values[i] * rstd * of.factor(group, column + i - of.begin(group));
    }
    y.store(row * of.row + column, left, vector, values);
  });
}

// With m = dots / width: dx = rstd (dy factor) - x rstd^3 m share; the gradients of values are
// copied. A thread reads a chunk before it writes it, so dx may be dy.
template <class T>
__global__ void __launch_bounds__(kThreads)
    head_norm_backward_kernel(Groups of, View<T> dy, View<T> x, const float* squares,
                              const float* dots, View<T> dx, bool vector) {
  const std::int64_t normed = (of.heads + of.kv_heads) * of.head_size;
  for_chunks(of.rows, of.row, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float d[kChunk], values[kChunk];
    dy.load(row * of.row + column, left, vector, d);
    x.load(row * of.row + column, left, vector, values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= left || column + i >= normed) break;
      const std::int64_t group = of.group_of(column + i);
      const std::int64_t number = row * of.groups + group;
      const float rstd = of.rstd(group, squares[number]);
      const double mean = static_cast<double>(dots[number]) / of.width(group);
      const auto pull = static_cast<float>(mean * rstd * rstd * rstd * of.share(group));
      const float factor = of.factor(group, column + i - of.begin(group));
      d[i] = rstd * (d[i] * factor) - values[i] * pull;
    }
    dx.store(row * of.row + column, left, vector, d);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    head_norm_weight_kernel(Groups of, View<T> dy, View<T> x, const float* squares, float* parts,
                            std::int64_t per_part, bool vector) {
  const std::int64_t columns = (of.heads + of.kv_heads) * of.head_size;
  sum_part<1>(of.rows, columns, per_part, parts,
              [&](std::int64_t row, std::int64_t column, float(&values)[1][kChunk]) {
                const std::int64_t left = columns - column, at = row * of.row + column;
                float d[kChunk];
                dy.load(at, left, vector, d);
                x.load(at, left, vector, values[0]);
#pragma unroll
                for (int i = 0; i < kChunk; ++i) {
                  if (i >= left) break;
                  const std::int64_t group = of.group_of(column + i);
                  values[0][i] *= d[i] * of.rstd(group, squares[row * of.groups + group]);
                }
              });
}

// gradient (channels) += the sums of `groups` groups of as many channels each.
__global__ void __launch_bounds__(kThreads)
    fold_groups_kernel(const float* sums, std::int64_t groups, std::int64_t channels,
                       float* gradient) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  float sum = 0.0f;
  for (std::int64_t group = 0; group < groups; ++group) sum += sums[group * channels + channel];
  gradient[channel] += sum;
}

}  // namespace

void head_squares(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares) {
  group_sums<false>(ctx, norm, qkv, qkv, squares);
}

void head_norm(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares,
               const Tensor& y) {
  const Groups of = groups_of(norm);
  with_type({&qkv, &y}, [&](auto type) {
    using T = decltype(type);
    launch(head_norm_kernel<T>, chunk_grid(of.rows, of.row), chunk_block(of.row), 0, ctx.stream, of,
           View<T>(qkv), device_data<float>(squares), View<T>(y), vectors_fit({&qkv, &y}, of.row));
  });
}

void head_norm_dots(Context& ctx, const HeadNorm& norm, const Tensor& dy, const Tensor& qkv,
                    const Tensor& dots) {
  group_sums<true>(ctx, norm, qkv, dy, dots);
}

void head_norm_backward_input(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                              const Tensor& qkv, const Tensor& squares, const Tensor& dots,
                              const Tensor& dqkv) {
  const Groups of = groups_of(norm);
  with_type({&dy, &qkv, &dqkv}, [&](auto type) {
    using T = decltype(type);
    launch(head_norm_backward_kernel<T>, chunk_grid(of.rows, of.row), chunk_block(of.row), 0,
           ctx.stream, of, View<T>(dy), View<T>(qkv), device_data<float>(squares),
           device_data<float>(dots), View<T>(dqkv), vectors_fit({&dy, &qkv, &dqkv}, of.row));
  });
}

void head_norm_backward_weight(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                               const Tensor& qkv, const Tensor& squares, const Tensor& dquery,
                               const Tensor& dkey) {
  const Groups of = groups_of(norm);
  const std::int64_t columns = norm.channels(), queries = norm.shape.heads * of.head_size;
  const std::int64_t per_part = rows_of_part(of.rows), count = blocks_for(of.rows, per_part);
  if (count == 0) return;
  const Tensor parts = parts_of_row_sums(ctx, 1, of.rows, columns);
  const Tensor sums = sums_of_columns(ctx, columns);
  gpu::fill(ctx, sums, 0.0f);
  with_type({&dy, &qkv}, [&](auto type) {
    using T = decltype(type);
    launch(head_norm_weight_kernel<T>, part_grid(columns, count), chunk_block(columns), 0,
           ctx.stream, of, View<T>(dy), View<T>(qkv), device_data<float>(squares),
           device_data<float>(parts), per_part, vectors_fit({&dy, &qkv}, of.row));
  });
  add_parts(ctx.stream, device_data<float>(parts), count, columns, device_data<float>(sums));
  const auto fold = [&](const Tensor& gradient, std::int64_t begin, std::int64_t end) {
    if (!gradient.defined()) return;
    const std::int64_t channels = gradient.elements();
    launch(fold_groups_kernel, extent(blocks_for(channels, kThreads)), kThreads, 0, ctx.stream,
           static_cast<const float*>(device_data<float>(sums) + begin), (end - begin) / channels,
           channels, device_data<float>(gradient));
  };
  fold(dquery, 0, queries);
  fold(dkey, queries, columns);
}

}  // namespace trireme::ops::gpu
