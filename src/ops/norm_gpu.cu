// Forward, a team of warps takes a row: one warp for up to 1024 columns, a block of four or eight
// for more. A row of whole chunks, up to 1024 columns a warp, stays in registers, so that it is
// read once. Backward: NormTeams.
#include <optional>
#include <type_traits>

#include "ops/device_ops.h"
#include "ops/gpu/norm_teams.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kHeld = 4;         // chunks of a row that a thread holds
constexpr int kRowsOfBlock = 4;  // if a warp takes a row
constexpr std::int64_t kWarpHolds = 32 * kHeld * kChunk;

// The threads that share a row.
template <int kWarps>
struct Team {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlock = kWarps == 1 ? kRowsOfBlock * 32 : kThreads;
  static constexpr int kRows = kBlock / kThreads;

  __device__ static std::int64_t row() {
    return static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
  }
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % kThreads; }
};

struct NormRows {
  std::int64_t rows, columns;
  bool vector;  // chunks are aligned
};

// A thread's part of a row. The thread holds it in registers, or reads it again each time if kHolds
// is false. each(body) calls body(k, column, left, values) for the thread's chunks. A held row is
// aligned and made of whole chunks, so it needs no checks.
template <class T, int kWarps, bool kHolds>
struct RowPart {
  View<T> x;
  std::int64_t begin, columns;
  bool vector;
  float held[kHolds ? kHeld : 1][kChunk];

  __device__ RowPart(View<T> view, std::int64_t row, const NormRows& shape)
      : x(view), begin(row * shape.columns), columns(shape.columns), vector(shape.vector) {
    if constexpr (kHolds) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k) {
        const std::int64_t column = column_of(k);
        if (column < columns) x.load(begin + column, kChunk, true, held[k]);
      }
    }
  }

  // Adds the row of `branch` and stores the sum. From then on this is the part of the sum.
  __device__ void add(const View<T>& branch, const View<T>& sum) {
    each([&](int, std::int64_t column, std::int64_t left, float(&v)[kChunk]) {
      const bool aligned = kHolds || vector;
      float other[kChunk];
      branch.load(begin + column, left, aligned, other);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = sum.rounded(v[i] + other[i]);
      sum.store(begin + column, left, aligned, v);
    });
    x = sum;
  }

  __device__ static std::int64_t column_of(int k) {
    return (static_cast<std::int64_t>(k) * Team<kWarps>::kThreads + Team<kWarps>::rank()) * kChunk;
  }
  template <class Body>
  __device__ void each(const Body& body) {
    if constexpr (kHolds) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k) {
        const std::int64_t column = column_of(k);
        if (column < columns) body(k, column, static_cast<std::int64_t>(kChunk), held[k]);
      }
    } else {
      constexpr std::int64_t kStep = Team<kWarps>::kThreads * kChunk;
      for (std::int64_t column = column_of(0); column < columns; column += kStep) {
        x.load(begin + column, columns - column, vector, held[0]);
        body(0, column, columns - column, held[0]);
      }
    }
  }
};

// y = (x - mean) rstd weight + bias. Without kCenter the mean is 0: RMS norm. With a branch it
// normalizes sum = x + branch.
template <class T, int kWarps, bool kHolds, bool kCenter>
__global__ void __launch_bounds__(Team<kWarps>::kBlock, 1)
    norm_kernel(View<T> x, View<T> branch, View<T> weight, float plus, View<T> bias, float epsilon,
                View<T> sum, View<T> y, float* mean, float* rstd, NormRows shape) {
  const std::int64_t row = Team<kWarps>::row();
  if (row >= shape.rows) return;
  const bool vector = kHolds || shape.vector;
  const auto inverse = 1.0f / static_cast<float>(shape.columns);
  RowPart<T, kWarps, kHolds> part(x, row, shape);
  if (branch.defined()) part.add(branch, sum);
  float m = 0.0f;
  if constexpr (kCenter) {
    float total = 0.0f;
    part.each([&](int, std::int64_t, std::int64_t, const float(&v)[kChunk]) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) total += v[i];  // 0 beyond the row
    });
    m = block_sum<kWarps>(total) * inverse;
  }
  float squares = 0.0f;
  part.each([&](int, std::int64_t, std::int64_t left, const float(&v)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) squares += i < left ? (v[i] - m) * (v[i] - m) : 0.0f;
  });
  const float r = 1.0f / sqrtf(block_sum<kWarps>(squares) * inverse + epsilon);
  part.each([&](int, std::int64_t column, std::int64_t left, const float(&v)[kChunk]) {
    float w[kChunk], b[kChunk] = {};
    weight.load(column, left, vector, w);
    if (bias.defined()) bias.load(column, left, vector, b);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) w[i] = (v[i] - m) * r * (w[i] + plus) + b[i];
    y.store(row * shape.columns + column, left, vector, w);
  });
  if (Team<kWarps>::rank() != 0) return;
  if (kCenter) mean[row] = m;
  rstd[row] = r;
}

// What the backward pass of a norm reads and writes. residual may be undefined.
template <class T>
struct Backward {
  View<T> dy, x, weight;
  const float* mean;
  const float* rstd;
  View<T> residual, dx;
  NormRows shape;
  float plus;  // NormFactor
};

// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)) + residual,
// without the mean of g for RMS norm. dx may be residual: a thread reads a chunk before it writes.
// For any row: it is read twice.
template <int kWarps, bool kCenter>
__global__ void __launch_bounds__(Team<kWarps>::kBlock, 1) norm_backward_kernel(Backward<Any> of) {
  const NormRows& shape = of.shape;
  const std::int64_t row = Team<kWarps>::row();
  if (row >= shape.rows) return;
  const float m = kCenter ? of.mean[row] : 0.0f, r = of.rstd[row];
  const std::int64_t begin = row * shape.columns;
  RowPart<Any, kWarps, false> part(of.dy, row, shape);
  const auto load = [&](std::int64_t column, std::int64_t left, float(&g)[kChunk],
                        float(&h)[kChunk]) {
    float w[kChunk];
    of.weight.load(column, left, shape.vector, w);
    of.x.load(begin + column, left, shape.vector, h);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) h[i] = (h[i] - m) * r, g[i] *= w[i] + of.plus;
  };
  float sum_g = 0.0f, sum_gh = 0.0f;
  part.each([&](int, std::int64_t column, std::int64_t left, float(&g)[kChunk]) {
    float h[kChunk];
    load(column, left, g, h);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      sum_g += g[i];  // 0 beyond the row
      sum_gh += g[i] * h[i];
    }
  });
  const auto inverse = 1.0f / static_cast<float>(shape.columns);
  const float mean_g = kCenter ? block_sum<kWarps>(sum_g) * inverse : 0.0f;
  const float mean_gh = block_sum<kWarps>(sum_gh) * inverse;
  part.each([&](int, std::int64_t column, std::int64_t left, float(&g)[kChunk]) {
    float h[kChunk], rest[kChunk] = {};
    load(column, left, g, h);
    if (of.residual.defined()) of.residual.load(begin + column, left, shape.vector, rest);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) g[i] = r * (g[i] - mean_g - h[i] * mean_gh) + rest[i];
    of.dx.store(begin + column, left, shape.vector, g);
  });
}

struct alignas(8) RowSums {
  float g, gh;
};

// What a block sums over its part of the rows.
enum class RowParts { kNone, kWeights, kWeightsAndInput };

// dx and, with kParts, the parts that norm_weight_kernel makes, in the same order; then those of
// the column sums of dx. A block takes a part of the rows. While it computes with some, it already
// reads the next.
template <class T, int kOwn, bool kCenter, RowParts kParts>
__global__ void __launch_bounds__(kOwn == 1 ? NormTeams::kThreads : NormTeams::kThreadsOfTwo,
                                  kOwn == 1 ? 2 : 1)
    norm_backward_rows_kernel(Backward<T> of, float* parts, std::int64_t per_part) {
  constexpr bool kWeights = kParts != RowParts::kNone;
  constexpr bool kInput = kParts == RowParts::kWeightsAndInput;
  constexpr int kOfWeights = kCenter ? 2 : 1, kSums = kOfWeights + (kInput ? 1 : 0);
  constexpr bool kRestAhead = kOwn * sizeof(T) < 8;  // else there are too few registers
  const std::int64_t rows = of.shape.rows, columns = of.shape.columns;
  const int rank = static_cast<int>(threadIdx.x), team = static_cast<int>(threadIdx.y);
  const int lanes = static_cast<int>(blockDim.x), teams = static_cast<int>(blockDim.y);
  const int warps = lanes / 32, warp = rank / 32;
  const std::int64_t first = blockIdx.x * per_part;
  const std::int64_t end = first + per_part < rows ? first + per_part : rows;
  const auto inverse = 1.0f / static_cast<float>(columns);
  const auto column_of = [&](int k) {
    return (static_cast<std::int64_t>(k) * lanes + rank) * kChunk;
  };

  struct Row {
    RawChunk<T> dy[kOwn], x[kOwn], rest[kOwn];
    float m = 0.0f, r = 0.0f;
  };
  // All zeros beyond the end, and in threads beyond the row.
  const auto read = [&](std::int64_t row) {
    Row next;
    if (row >= end) return next;
    if constexpr (kCenter) next.m = of.mean[row];
    next.r = of.rstd[row];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (column_of(k) >= columns) continue;
      const std::int64_t at = row * columns + column_of(k);
      next.dy[k] = load_raw(of.dy.data + at);
      next.x[k] = load_raw(of.x.data + at);
      if (kRestAhead && of.residual.defined()) next.rest[k] = load_raw(of.residual.data + at);
    }
    return next;
  };

  TRIREME_SHARED(RowSums, of_warps, 2 * NormTeams::kMostWarps);
  float sums[kSums][kOwn][kChunk] = {};
  Row row = read(first + team);
  int turn = 0;  // the sums of two rounds lie apart, so that a barrier a round is enough
  for (std::int64_t begin = first; begin < end; begin += teams, turn = 1 - turn) {
    const std::int64_t at = (begin + team) * columns;
    const float r = row.r;
    float d[kOwn][kChunk], h[kOwn][kChunk];
    RawChunk<T> rest[kOwn];
    RowSums own = {0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      unpack(row.dy[k], d[k]);
      unpack(row.x[k], h[k]);
      rest[k] = row.rest[k];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) h[k][i] = (h[k][i] - row.m) * r;
    }
    row = read(begin + teams + team);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (column_of(k) >= columns) continue;
      float w[kChunk];
      load_vector(of.weight.data + column_of(k), w);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if constexpr (kWeights) {
          sums[0][k][i] += d[k][i] * h[k][i];
          if constexpr (kCenter) sums[1][k][i] += d[k][i];
        }
        d[k][i] *= w[i] + of.plus;
        if constexpr (kCenter) own.g += d[k][i];
        own.gh += d[k][i] * h[k][i];
      }
    }
    if constexpr (kCenter) own.g = warp_sum(own.g);
    own.gh = warp_sum(own.gh);
    RowSums* const shared = of_warps + turn * NormTeams::kMostWarps + team * warps;
    if (rank % 32 == 0) shared[warp] = own;
    __syncthreads();
    RowSums all = {0.0f, 0.0f};
    for (int i = 0; i < warps; ++i) {
      all.g += shared[i].g;
      all.gh += shared[i].gh;
    }
    if (begin + team >= end) continue;
    const float mean_g = kCenter ? all.g * inverse : 0.0f, mean_gh = all.gh * inverse;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (column_of(k) >= columns) continue;
      if (!kRestAhead && of.residual.defined()) {
        rest[k] = load_raw(of.residual.data + at + column_of(k));
      }
      float more[kChunk];
      unpack(rest[k], more);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        d[k][i] = r * (d[k][i] - mean_g - h[k][i] * mean_gh) + more[i];
        if constexpr (kInput) sums[kOfWeights][k][i] += View<T>::rounded(d[k][i]);
      }
      store_vector(of.dx.data + at + column_of(k), d[k]);
    }
  }
  if constexpr (kWeights) {
    TRIREME_SHARED(float, shared, NormTeams::kThreadsOfTwo* kChunk);
    const int width = lanes * kChunk;
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          shared[team * width + rank * kChunk + i] = sums[s][k][i];
        }
        __syncthreads();
        float* const to = parts + (static_cast<std::int64_t>(s) * gridDim.x + blockIdx.x) * columns;
        for (int i = team * lanes + rank; i < width; i += teams * lanes) {
          const std::int64_t column = static_cast<std::int64_t>(k) * width + i;
          if (column >= columns) continue;
          float total = 0.0f;
          for (int y = 0; y < teams; ++y) total += shared[y * width + i];
          to[column] = total;
        }
      }
    }
  }
}

// Parts of dweight = sum of dy h and, for layer norm, dbias = sum of dy.
template <class T, bool kCenter>
__global__ void __launch_bounds__(256)
    norm_weight_kernel(View<T> dy, View<T> x, const float* mean, const float* rstd, float* parts,
                       std::int64_t per_part, NormRows shape) {
  constexpr int kSums = kCenter ? 2 : 1;
  sum_part<kSums>(shape.rows, shape.columns, per_part, parts,
                  [&](std::int64_t row, std::int64_t column, float(&values)[kSums][kChunk]) {
                    const std::int64_t left = shape.columns - column;
                    const std::int64_t at = row * shape.columns + column;
                    const float m = kCenter ? mean[row] : 0.0f, r = rstd[row];
                    float d[kChunk], h[kChunk];
                    dy.load(at, left, shape.vector, d);
                    x.load(at, left, shape.vector, h);
#pragma unroll
                    for (int i = 0; i < kChunk; ++i) {
                      values[0][i] = d[i] * ((h[i] - m) * r);
                      if constexpr (kCenter) values[1][i] = d[i];
                    }
                  });
}

template <int n>
struct Warps {
  static constexpr int value = n;
};

// Calls body(type, warps, holds) with the parameters of the kernel for rows of these tensors: a
// fast one for whole aligned chunks of one type, and a general one for everything else.
template <class Body>
void with_team(std::initializer_list<const Tensor*> tensors, const NormRows& shape,
               const Body& body) {
  with_type(tensors, [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), Any>) {
      if (shape.vector && shape.columns <= kWarpHolds) {
        return body(type, Warps<1>(), std::true_type());
      }
      if (shape.vector && shape.columns <= 4 * kWarpHolds) {
        return body(type, Warps<4>(), std::true_type());
      }
      if (shape.vector && shape.columns <= 8 * kWarpHolds) {
        return body(type, Warps<8>(), std::true_type());
      }
    }
    body(Any(), Warps<4>(), std::false_type());
  });
}

// Replaces an undefined tensor, so that it does not affect the choice of a type.
const Tensor& or_else(const Tensor& x, const Tensor& other) {
  return x.defined() ? x : other;
}
template <class T>
View<T> view_if_any(const Tensor& x) {
  return x.defined() ? View<T>(x) : View<T>();
}

// branch and sum are undefined if nothing is added to x.
template <bool kCenter>
void norm(Context& ctx, const Tensor& x, const Tensor& branch, const NormFactor& factor,
          const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y, float* mean,
          float* rstd) {
  const Tensor& weight = factor.weight;
  const NormRows shape = {x.shape()[0], x.shape()[1],
                          vectors_fit({&x, &branch, &weight, &bias, &sum, &y}, x.shape()[1])};
  const std::initializer_list<const Tensor*> types = {
      &x, &or_else(branch, x), &weight, &or_else(bias, x), &or_else(sum, x), &y};
  with_team(types, shape, [&](auto type, auto warps, auto holds) {
    using T = decltype(type);
    using Rows = Team<decltype(warps)::value>;
    launch(norm_kernel<T, decltype(warps)::value, decltype(holds)::value, kCenter>,
           extent(blocks_for(shape.rows, Rows::kRows)), Rows::kBlock, 0, ctx.stream, View<T>(x),
           view_if_any<T>(branch), View<T>(weight), factor.plus, view_if_any<T>(bias), epsilon,
           view_if_any<T>(sum), View<T>(y), mean, rstd, shape);
  });
}

template <class T>
Backward<T> backward_of(const Tensor& dy, const Tensor& x, const NormFactor& factor,
                        const float* mean, const float* rstd, const Tensor& residual,
                        const Tensor& dx, const NormRows& shape) {
  return {View<T>(dy), View<T>(x), View<T>(factor.weight),
          mean,        rstd,       view_if_any<T>(residual),
          View<T>(dx), shape,      factor.plus};
}

// Whether the pass by teams can make column sums of dx too: there are registers for them where a
// thread has one chunk, of 16 bits an element.
template <bool kCenter, class T>
constexpr bool kSumsInput = kCenter && (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>);

// Launches the kernel for rows that NormTeams take, and returns which parts it makes: `wanted`, or
// without those of dx where it cannot make these. None if they are no such rows.
template <bool kCenter, class T>
std::optional<RowParts> backward_by_teams(Context& ctx, const Backward<T>& of, RowParts wanted,
                                          float* parts, std::int64_t per_part) {
  const NormTeams take(of.shape.columns);
  if (std::is_same_v<T, Any> || !take.fits || !of.shape.vector) return std::nullopt;
  if constexpr (!std::is_same_v<T, Any>) {
    const auto with = [&](auto kernel) {
      launch(kernel, extent(blocks_for(of.shape.rows, per_part)), take.block(), 0, ctx.stream, of,
             parts, per_part);
    };
    if constexpr (kSumsInput<kCenter, T>) {
      if (wanted == RowParts::kWeightsAndInput && !take.two) {
        with(norm_backward_rows_kernel<T, 1, kCenter, RowParts::kWeightsAndInput>);
        return wanted;
      }
    }
    if (wanted == RowParts::kNone) {
      take.two ? with(norm_backward_rows_kernel<T, 2, kCenter, RowParts::kNone>)
               : with(norm_backward_rows_kernel<T, 1, kCenter, RowParts::kNone>);
      return wanted;
    }
    take.two ? with(norm_backward_rows_kernel<T, 2, kCenter, RowParts::kWeights>)
             : with(norm_backward_rows_kernel<T, 1, kCenter, RowParts::kWeights>);
  }
  return RowParts::kWeights;
}

template <bool kCenter>
void norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                   const float* mean, const float* rstd, const Tensor& residual, const Tensor& dx) {
  constexpr int kRounds = 16;  // of a block
  const Tensor& weight = factor.weight;
  const NormRows shape = {x.shape()[0], x.shape()[1],
                          vectors_fit({&dy, &x, &weight, &residual, &dx}, x.shape()[1])};
  with_type({&dy, &x, &weight, &or_else(residual, x), &dx}, [&](auto type) {
    using T = decltype(type);
    const auto of = backward_of<T>(dy, x, factor, mean, rstd, residual, dx, shape);
    const int rows = NormTeams(shape.columns).teams * kRounds;
    if (backward_by_teams<kCenter>(ctx, of, RowParts::kNone, nullptr, rows)) return;
    launch(norm_backward_kernel<4, kCenter>, extent(shape.rows), Team<4>::kBlock, 0, ctx.stream,
           backward_of<Any>(dy, x, factor, mean, rstd, residual, dx, shape));
  });
}

template <bool kCenter>
void norm_weight(Context& ctx, const Tensor& dy, const Tensor& x, const float* mean,
                 const float* rstd, float* dweight, float* dbias) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const std::int64_t per_part = rows_of_part(rows), count = blocks_for(rows, per_part);
  if (count == 0) return;
  const NormRows shape = {rows, columns, vectors_fit({&dy, &x}, columns)};
  const Tensor parts = parts_of_row_sums(ctx, kCenter ? 2 : 1, rows, columns);
  float* sums = device_data<float>(parts);
  with_type({&dy, &x}, [&](auto type) {
    using T = decltype(type);
    launch(norm_weight_kernel<T, kCenter>, part_grid(columns, count),
           NormTeams::block_of_sums(columns), 0, ctx.stream, View<T>(dy), View<T>(x), mean, rstd,
           sums, per_part, shape);
  });
  add_parts(ctx.stream, sums, count, columns, dweight, dbias);
}

// dx_sums may be undefined.
template <bool kCenter>
void norm_backward_all(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                       const float* mean, const float* rstd, const Tensor& residual,
                       const Tensor& dx, float* dweight, float* dbias, const Tensor& dx_sums) {
  constexpr int kOfWeights = kCenter ? 2 : 1;
  const Tensor& weight = factor.weight;
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const std::int64_t per_part = rows_of_part(rows), count = blocks_for(rows, per_part);
  const NormRows shape = {rows, columns, vectors_fit({&dy, &x, &weight, &residual, &dx}, columns)};
  if (count == 0) return;
  const auto wanted = dx_sums.defined() ? RowParts::kWeightsAndInput : RowParts::kWeights;
  with_type({&dy, &x, &weight, &or_else(residual, x), &dx}, [&](auto type) {
    using T = decltype(type);
    const auto of = backward_of<T>(dy, x, factor, mean, rstd, residual, dx, shape);
    std::optional<RowParts> made;
    {
      const Tensor parts =
          parts_of_row_sums(ctx, kOfWeights + (dx_sums.defined() ? 1 : 0), rows, columns);
      float* sums = device_data<float>(parts);
      made = backward_by_teams<kCenter>(ctx, of, wanted, sums, per_part);
      if (made) add_parts(ctx.stream, sums, count, columns, dweight, dbias);
      if (made == RowParts::kWeightsAndInput) {
        return add_parts(ctx.stream, sums + kOfWeights * count * columns, count, columns,
                         device_data<float>(dx_sums));
      }
    }
    if (!made) {
      norm_weight<kCenter>(ctx, dy, x, mean, rstd, dweight, dbias);  // before dx takes dy's place
      norm_backward<kCenter>(ctx, dy, x, factor, mean, rstd, residual, dx);
    }
    if (dx_sums.defined()) gpu::add_column_sums(ctx, dx, dx_sums);
  });
}

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  norm<true>(ctx, x, Tensor(), weight, bias, epsilon, Tensor(), y, device_data<float>(mean),
             device_data<float>(rstd));
}

void add_layer_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                    const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd) {
  norm<true>(ctx, x, branch, weight, bias, epsilon, sum, y, device_data<float>(mean),
             device_data<float>(rstd));
}

void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& residual, const Tensor& dx) {
  norm_backward<true>(ctx, dy, x, weight, device_data<float>(mean), device_data<float>(rstd),
                      residual, dx);
}

void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias) {
  norm_weight<true>(ctx, dy, x, device_data<float>(mean), device_data<float>(rstd),
                    device_data<float>(dweight), device_data<float>(dbias));
}

void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dx_sums) {
  norm_backward_all<true>(ctx, dy, x, weight, device_data<float>(mean), device_data<float>(rstd),
                          residual, dx, device_data<float>(dweight), device_data<float>(dbias),
                          dx_sums);
}

void rms_norm(Context& ctx, const Tensor& x, const NormFactor& factor, float epsilon,
              const Tensor& y, const Tensor& rstd) {
  norm<false>(ctx, x, Tensor(), factor, Tensor(), epsilon, Tensor(), y, nullptr,
              device_data<float>(rstd));
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const NormFactor& factor,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  norm<false>(ctx, x, branch, factor, Tensor(), epsilon, sum, y, nullptr, device_data<float>(rstd));
}

void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                             const NormFactor& factor, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx) {
  norm_backward<false>(ctx, dy, x, factor, nullptr, device_data<float>(rstd), residual, dx);
}

void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight) {
  norm_weight<false>(ctx, dy, x, nullptr, device_data<float>(rstd), device_data<float>(dweight),
                     nullptr);
}

void rms_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                       const Tensor& rstd, const Tensor& residual, const Tensor& dx,
                       const Tensor& dweight) {
  norm_backward_all<false>(ctx, dy, x, factor, nullptr, device_data<float>(rstd), residual, dx,
                           device_data<float>(dweight), nullptr, Tensor());
}

}  // namespace trireme::ops::gpu
