#include <algorithm>
#include <type_traits>

#include "ops/device_ops.h"
#include "ops/gpu/math.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// A part's maximum, and its sum of exp(x - maximum). A NaN is never the maximum, but makes the sum
// NaN. The empty part is (-infinity, 0).
struct Softmax {
  float maximum, sum;
};

__device__ inline float rescaled(const Softmax& part, float maximum) {
  return part.maximum == maximum ? part.sum : part.sum * exp_of_difference(part.maximum - maximum);
}
__device__ inline Softmax merged(const Softmax& a, const Softmax& b) {
  const float maximum = a.maximum > b.maximum ? a.maximum : b.maximum;
  return {maximum, rescaled(a, maximum) + rescaled(b, maximum)};
}

// The whole of the parts of a block of kCount warps. All threads get it, with the same bits.
template <int kCount>
__device__ inline Softmax block_softmax(Softmax part) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other = {__shfl_xor_sync(kAllLanes, part.maximum, offset),
                           __shfl_xor_sync(kAllLanes, part.sum, offset)};
    part = merged(part, other);
  }
  TRIREME_SHARED(Softmax, parts, kCount);
  __syncthreads();  // all threads have read an earlier one
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  Softmax all = parts[0];
  for (int warp = 1; warp < kCount; ++warp) all = merged(all, parts[warp]);
  return all;
}

struct BendLogits {
  LogitBend bend;
  __device__ float operator()(float x) const {
    return bend.cap > 0.0f ? bend.cap * tanhf(bend.scale * x / bend.cap) : bend.scale * x;
  }
  // The derivative where the result is y.
  __device__ float slope(float y) const {
    const float share = bend.cap > 0.0f ? y / bend.cap : 0.0f;
    return bend.scale * (1.0f - share * share);
  }
};

template <class L>
__global__ void __launch_bounds__(kThreads)
    bend_kernel(BendLogits bend, L* logits, std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) assign(logits[at], bend(to_float(logits[at])));
}

struct Classes {
  std::int64_t count, valid, first;
};

// A part, and values with it, of which the first `left` count. The others are overwritten.
template <int kCount>
__device__ inline Softmax with_values(const Softmax& part, float (&values)[kCount],
                                      std::int64_t left) {
  if (left < kCount) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = i < left ? values[i] : -infinity();
  }
  float maximum = part.maximum;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (values[i] > maximum) maximum = values[i];
  }
  float sum = rescaled(part, maximum);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum += exp_of_difference(values[i] - maximum);
  return {maximum, sum};
}

// A block takes a row, which it reads once.
template <class L>
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(const L* logits, const std::int32_t* targets, Classes classes, float* row_max,
                      float* row_sum, float* target_logit, bool vector) {
  const std::int64_t row = blockIdx.x;
  const L* x = logits + row * classes.count;
  Softmax mine = {-infinity(), 0.0f};
#pragma unroll 2
  for (std::int64_t at = threadIdx.x * kChunk; at < classes.valid; at += kThreads * kChunk) {
    float values[kChunk];
    const std::int64_t left = classes.valid - at;
    load_chunk(x + at, left, vector, values);
    mine = with_values(mine, values, left);
  }
  mine = block_softmax<kWarps>(mine);
  if (threadIdx.x != 0) return;
  row_max[row] = mine.maximum;
  row_sum[row] = mine.sum;
  const std::int32_t target = targets[row];
  const std::int64_t local = target - classes.first;
  const bool here = target != kMaskedTarget && 0 <= local && local < classes.valid;
  target_logit[row] = here ? to_float(x[local]) : 0.0f;
}

template <class L, class T, bool kBent>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(BendLogits bend, const L* logits, const std::int32_t* targets, Classes classes,
                    const float* row_max, const float* row_sum, const StepState* state,
                    View<T> dlogits, std::int64_t rows, bool vector) {
  const float scale = state->loss_scale;
  for_chunks(rows, classes.count, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float values[kChunk] = {};
    const std::int32_t target = targets[row];
    if (target != kMaskedTarget) {
      const float maximum = row_max[row], inverse = 1.0f / row_sum[row];
      const std::int64_t local = target - classes.first;
      load_chunk(logits + row * classes.count + column, left, vector, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const std::int64_t at = column + i;
        const float weight = exp_of_difference(values[i] - maximum) * inverse;
        const float slope = kBent ? bend.slope(values[i]) * scale : scale;
        values[i] = at < classes.valid ? (weight - (at == local ? 1.0f : 0.0f)) * slope : 0.0f;
      }
    }
    dlogits.store(row * classes.count + column, left, vector, values);
  });
}

constexpr int kHeldThreads = 1024;
constexpr int kHeldWarps = kHeldThreads / 32;

// Statistics and gradient of rows that fit into shared memory, of whole aligned chunks. A block
// takes a row after the other: while it writes the gradient of one, the next comes into its place.
// A thread copies, reads and writes the same quads of every row, so only the reductions need
// barriers. dlogits may be logits.
template <class T>
__global__ void __launch_bounds__(kHeldThreads, 1)
    held_rows_kernel(const float* logits, const std::int32_t* targets, Classes classes,
                     float* row_max, float* row_sum, float* target_logit, const StepState* state,
                     T* dlogits, std::int64_t rows) {
  TRIREME_DYNAMIC_SHARED(float, held);
  const float scale = state->loss_scale;
  const int count = static_cast<int>(classes.count), valid = static_cast<int>(classes.valid);
  const int first = static_cast<int>(threadIdx.x) * 4;
  constexpr int kStep = kHeldThreads * 4;
  for (int at = first; at < count; at += kStep) {
    start_copy(held + at, logits + blockIdx.x * classes.count + at);
  }
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t begin = row * classes.count, next = row + gridDim.x;
    const std::int32_t target = targets[row];
    const bool masked = target == kMaskedTarget;
    const bool here = !masked && 0 <= target && target < valid;
    // This reads before any thread writes the gradient, which may be in the same place.
    if (threadIdx.x == 0) target_logit[row] = here ? logits[begin + target] : 0.0f;
    wait_for_copies();
    float maximum = -infinity();
    float values[4];
    for (int at = first; at < count; at += kStep) {
      load_four(held + at, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at + i < valid && values[i] > maximum) maximum = values[i];
      }
    }
    maximum = block_max<kHeldWarps>(maximum);
    float sum = 0.0f;
    for (int at = first; at < count; at += kStep) {
      load_four(held + at, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[i] = at + i < valid ? exp_of_difference(values[i] - maximum) : 0.0f;
        sum += values[i];
      }
      store_four(held + at, values);
    }
    sum = block_sum<kHeldWarps>(sum);
    if (threadIdx.x == 0) {
      row_max[row] = maximum;
      row_sum[row] = sum;
    }
    const float inverse = 1.0f / sum;
    for (int at = first; at < count; at += kStep) {
      load_four(held + at, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool counts = !masked && at + i < valid;
        const float wanted = at + i == target ? 1.0f : 0.0f;
        values[i] = counts ? (values[i] * inverse - wanted) * scale : 0.0f;
      }
      store_four(dlogits + begin + at, values);
      if (next < rows) start_copy(held + at, logits + next * classes.count + at);
    }
  }
}

constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / 32;

__device__ inline void load_piece(const float* from, float (&values)[4]) {
  load_four(from, values);
}
__device__ inline void load_piece(const BFloat16* from, float (&values)[kChunk]) {
  load_vector(from, values);
}
template <class T>
__device__ inline void store_piece(T* to, const float (&values)[4]) {
  store_four(to, values);
}
template <class T>
__device__ inline void store_piece(T* to, const float (&values)[kChunk]) {
  store_vector(to, values);
}

// Statistics and gradient of rows of any length, of whole aligned chunks. Blocks take rows as those
// of held_rows_kernel do, but there are two on a multiprocessor, so that one computes while the
// other waits. Shared memory holds the first `held` logits of a row as they are; the rest is read
// twice. A thread reads and writes the same pieces of 16 bytes of every row, in the same order
// whatever is held, so the sums' bits depend on the row's length and type alone. dlogits may be
// logits.
template <class L, class T, bool kBent>
__global__ void __launch_bounds__(kRowThreads, 2)
    rows_kernel(BendLogits bend, const L* logits, const std::int32_t* targets, Classes classes,
                int held, float* row_max, float* row_sum, float* target_logit,
                const StepState* state, T* dlogits, std::int64_t rows) {
  TRIREME_DYNAMIC_SHARED(L, part);
  constexpr int kPiece = 16 / static_cast<int>(sizeof(L));
  constexpr int kStep = kRowThreads * kPiece;
  const float scale = state->loss_scale;
  const int count = static_cast<int>(classes.count), valid = static_cast<int>(classes.valid);
  const int first = static_cast<int>(threadIdx.x) * kPiece;
  const int held_and_valid = held < valid ? held : valid;
  for (int at = first; at < held; at += kStep) {
    start_copy(part + at, logits + blockIdx.x * classes.count + at);
  }
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const L* x = logits + row * classes.count;
    T* dx = dlogits + row * classes.count;
    const std::int64_t next = row + gridDim.x;
    const std::int32_t target = targets[row];
    const bool masked = target == kMaskedTarget;
    const bool here = !masked && 0 <= target && target < valid;
    // This reads before any thread writes the gradient, which may be in the same place.
    if (threadIdx.x == 0) target_logit[row] = here ? to_float(x[target]) : 0.0f;
    wait_for_copies();
    Softmax all = {-infinity(), 0.0f};
    float values[kPiece];
    int at = first;
    for (; at < held_and_valid; at += kStep) {
      load_piece(part + at, values);
      all = with_values(all, values, valid - at);
    }
#pragma unroll 4
    for (; at < valid; at += kStep) {
      load_piece(x + at, values);
      all = with_values(all, values, valid - at);
    }
    all = block_softmax<kRowWarps>(all);
    if (threadIdx.x == 0) {
      row_max[row] = all.maximum;
      row_sum[row] = all.sum;
    }
    const float inverse = 1.0f / all.sum;
    const auto write_gradient = [&](int place) {
      const bool plain = !masked && place + kPiece <= valid &&
                         static_cast<unsigned>(target - place) >= static_cast<unsigned>(kPiece);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        float share = exp_of_difference(values[i] - all.maximum) * inverse;
        if (!plain && place + i == target) share -= 1.0f;
        const float slope = kBent ? bend.slope(values[i]) * scale : scale;
        values[i] = plain || (!masked && place + i < valid) ? share * slope : 0.0f;
      }
      store_piece(dx + place, values);
    };
    for (at = first; at < held; at += kStep) {
      load_piece(part + at, values);
      write_gradient(at);
      if (next < rows) start_copy(part + at, logits + next * classes.count + at);
    }
    for (; at < count; at += kStep) {
      load_piece(x + at, values);
      write_gradient(at);
    }
  }
}

constexpr int kLossThreads = 1024;

// One block, so that the order of the sum depends on its threads alone.
__global__ void __launch_bounds__(kLossThreads)
    loss_sum_kernel(const std::int32_t* targets, const float* row_max, const float* row_sum,
                    const float* target_logit, std::int64_t rows, double* total) {
  double sum = 0.0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < rows; row += kLossThreads) {
    if (targets[row] == kMaskedTarget) continue;
    sum += log(static_cast<double>(row_sum[row])) + static_cast<double>(row_max[row]) -
           static_cast<double>(target_logit[row]);
  }
  sum = block_sum<kLossThreads / 32>(sum);
  if (threadIdx.x == 0) *total += sum;
}

__global__ void __launch_bounds__(kThreads)
    rescale_kernel(const float* local_max, const float* row_max, float* row_sum,
                   std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows) row_sum[row] *= expf(local_max[row] - row_max[row]);
}

// A block takes a row. rows (3, rows) gets its loss, its maximum, and its sum of exp(x - maximum).
template <class T>
__global__ void __launch_bounds__(kThreads)
    classification_kernel(View<T> logits, const std::int32_t* targets, std::int64_t classes,
                          float smoothing, double* rows) {
  const std::int64_t row = blockIdx.x, begin = row * classes, count = gridDim.x;
  Softmax mine = {-infinity(), 0.0f};
  double all = 0.0;
  for (std::int64_t c = threadIdx.x; c < classes; c += kThreads) {
    const float x = logits.at(begin + c);
    mine = merged(mine, {x, 1.0f});
    all += static_cast<double>(x);
  }
  mine = block_softmax<kWarps>(mine);
  all = block_sum<kWarps>(all);
  if (threadIdx.x != 0) return;
  rows[count + row] = static_cast<double>(mine.maximum);
  rows[2 * count + row] = static_cast<double>(mine.sum);
  const std::int32_t target = targets[row];
  double loss = 0.0;
  if (target != kMaskedTarget) {
    const auto share = static_cast<double>(smoothing);
    loss = log(static_cast<double>(mine.sum)) + static_cast<double>(mine.maximum) -
           (1.0 - share) * static_cast<double>(logits.at(begin + target));
    if (smoothing > 0.0f) loss -= share * all / static_cast<double>(classes);
  }
  rows[row] = loss;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    classification_gradient_kernel(View<T> logits, const std::int32_t* targets,
                                   std::int64_t classes, float smoothing, const double* saved,
                                   const StepState* state, View<T> dlogits, std::int64_t rows,
                                   bool vector) {
  const float everywhere = smoothing / static_cast<float>(classes), scale = state->loss_scale;
  for_chunks(rows, classes, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    const auto maximum = static_cast<float>(saved[rows + row]);
    const float inverse = 1.0f / static_cast<float>(saved[2 * rows + row]);
    const std::int32_t target = targets[row];
    float values[kChunk];
    logits.load(row * classes + column, left, vector, values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float wanted = everywhere + (column + i == target ? 1.0f - smoothing : 0.0f);
      const float share = exp_of_difference(values[i] - maximum) * inverse;
      values[i] = target == kMaskedTarget ? 0.0f : (share - wanted) * scale;
    }
    dlogits.store(row * classes + column, left, vector, values);
  });
}

// A block takes a row: how many logits are larger than the target's.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ranks_kernel(View<T> logits, const std::int32_t* targets, std::int64_t classes,
                 std::int32_t* ranks) {
  const std::int64_t row = blockIdx.x, begin = row * classes;
  const std::int32_t target = targets[row];
  const float mine = target == kMaskedTarget ? 0.0f : logits.at(begin + target);
  int larger = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += kThreads) {
    const float x = logits.at(begin + c);
    larger += !(x < mine || (x == mine && c >= target)) ? 1 : 0;
  }
  larger = block_sum<kWarps>(larger);
  if (threadIdx.x != 0) return;
  ranks[row] = target == kMaskedTarget || mine != mine ? static_cast<int>(classes) : larger;
}

// One block each, so that the order of the sum depends on its threads alone.
__global__ void __launch_bounds__(kLossThreads)
    add_losses_kernel(const double* losses, std::int64_t rows, double* total) {
  double sum = 0.0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kLossThreads) sum += losses[row];
  sum = block_sum<kLossThreads / 32>(sum);
  if (threadIdx.x == 0) *total += sum;
}
__global__ void __launch_bounds__(kLossThreads)
    count_ranks_kernel(const std::int32_t* ranks, std::int64_t rows, std::int64_t classes,
                       std::int64_t* counts) {
  int first = 0, among_five = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kLossThreads) {
    first += ranks[row] < 1 ? 1 : 0;
    among_five += ranks[row] < 5 && ranks[row] < classes ? 1 : 0;
  }
  first = block_sum<kLossThreads / 32>(first);
  among_five = block_sum<kLossThreads / 32>(among_five);
  if (threadIdx.x != 0) return;
  counts[0] += first;
  counts[1] += among_five;
}

// Calls body(L()), where L is the type of the logits.
template <class Body>
void with_logits(const Tensor& logits, const Body& body) {
  if (logits.dtype() == DType::kF32) return body(float());
  body(BFloat16());
}
// Calls body(L(), T()), where T is the type of the gradient.
template <class Body>
void with_logits(const Tensor& logits, const Tensor& dlogits, const Body& body) {
  if (logits.dtype() == DType::kBF16) return body(BFloat16(), BFloat16());
  with_type({&dlogits}, [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), Any>) body(float(), type);
  });
}

// The part of each row that a block of rows_kernel holds, and the blocks on a multiprocessor.
struct Held {
  int columns, blocks;
};
// There are two if together they hold as much as a row. One holds more of a longer row, so less of
// the rows in flight is read again, and the cache may have it.
Held held_of(std::int64_t classes, std::size_t size) {
  constexpr std::size_t kDeclared = kRowWarps * sizeof(Softmax);
  const auto row = static_cast<std::size_t>(classes) * size;
  const auto most = [](int blocks) { return (most_shared_bytes(blocks) - kDeclared) / 16 * 16; };
  const int blocks = row <= 2 * most(2) ? 2 : 1;
  return {static_cast<int>(std::min(row, most(blocks)) / size), blocks};
}

}  // namespace

void bend_logits(Context& ctx, const Tensor& logits, const LogitBend& bend) {
  with_logits(logits, [&](auto type) {
    using L = decltype(type);
    launch(bend_kernel<L>, extent(blocks_for(logits.elements(), kThreads)), kThreads, 0, ctx.stream,
           BendLogits{bend}, device_data<L>(logits), logits.elements());
  });
}

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  const Classes classes = {logits.shape()[1], valid, first_class};
  with_logits(logits, [&](auto type) {
    using L = decltype(type);
    launch(statistics_kernel<L>, extent(logits.shape()[0]), kThreads, 0, ctx.stream,
           device_data<L>(logits), device_data<std::int32_t>(targets), classes,
           device_data<float>(row_max), device_data<float>(row_sum),
           device_data<float>(target_logit), vectors_fit({&logits}, classes.count));
  });
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits, const LogitBend& bend) {
  const std::int64_t rows = logits.shape()[0];
  const Classes classes = {logits.shape()[1], valid, first_class};
  with_logits(logits, dlogits, [&](auto from, auto to) {
    using L = decltype(from);
    using T = decltype(to);
    launch(bend.bends() ? gradient_kernel<L, T, true> : gradient_kernel<L, T, false>,
           chunk_grid(rows, classes.count), chunk_block(classes.count), 0, ctx.stream,
           BendLogits{bend}, device_data<L>(logits), device_data<std::int32_t>(targets), classes,
           device_data<float>(row_max), device_data<float>(row_sum),
           static_cast<const StepState*>(ctx.step_state.get()), View<T>(dlogits), rows,
           vectors_fit({&logits, &dlogits}, classes.count));
  });
}

void softmax_and_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                          std::int64_t valid, const Tensor& row_max, const Tensor& row_sum,
                          const Tensor& target_logit, const Tensor& dlogits,
                          const LogitBend& bend) {
  const std::int64_t rows = logits.shape()[0], columns = logits.shape()[1];
  if (rows == 0) return;
  constexpr std::size_t kDeclared = 2 * kHeldWarps * sizeof(float);  // by both reductions
  const std::size_t row = static_cast<std::size_t>(columns) * sizeof(float);
  const bool whole = logits.dtype() == DType::kF32 && row + kDeclared <= most_shared_bytes();
  if (!vectors_fit({&logits, &dlogits}, columns) || (whole && bend.bends())) {
    gpu::softmax_statistics(ctx, logits, targets, 0, valid, row_max, row_sum, target_logit);
    gpu::softmax_gradient(ctx, logits, targets, 0, valid, row_max, row_sum, dlogits, bend);
    return;
  }
  const Classes classes = {columns, valid, 0};
  const auto blocks = [&](int each) {
    return extent(std::min<std::int64_t>(rows, std::int64_t{each} * multiprocessors()));
  };
  const auto* state = static_cast<const StepState*>(ctx.step_state.get());
  with_logits(logits, dlogits, [&](auto from, auto to) {
    using L = decltype(from);
    using T = decltype(to);
    if constexpr (std::is_same_v<L, float>) {
      if (whole) {
        launch(held_rows_kernel<T>, blocks(1), kHeldThreads, row, ctx.stream,
               device_data<float>(logits), device_data<std::int32_t>(targets), classes,
               device_data<float>(row_max), device_data<float>(row_sum),
               device_data<float>(target_logit), state, device_data<T>(dlogits), rows);
        return;
      }
    }
    const Held held = held_of(columns, sizeof(L));
    const auto kernel = bend.bends() ? rows_kernel<L, T, true> : rows_kernel<L, T, false>;
    prefer_shared_memory(kernel);
    launch(kernel, blocks(held.blocks), kRowThreads,
           static_cast<std::size_t>(held.columns) * sizeof(L), ctx.stream, BendLogits{bend},
           device_data<L>(logits), device_data<std::int32_t>(targets), classes, held.columns,
           device_data<float>(row_max), device_data<float>(row_sum),
           device_data<float>(target_logit), state, device_data<T>(dlogits), rows);
  });
}

void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum) {
  launch(loss_sum_kernel, 1, kLossThreads, 0, ctx.stream, device_data<std::int32_t>(targets),
         device_data<float>(row_max), device_data<float>(row_sum), device_data<float>(target_logit),
         targets.elements(), device_data<double>(sum));
}

void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum) {
  const std::int64_t rows = row_sum.elements();
  launch(rescale_kernel, extent(blocks_for(rows, kThreads)), kThreads, 0, ctx.stream,
         device_data<float>(local_max), device_data<float>(row_max), device_data<float>(row_sum),
         rows);
}

void classification_loss(Context& ctx, const Tensor& logits, const Tensor& targets, float smoothing,
                         const Tensor& sum, const Tensor& dlogits) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const Tensor saved = losses_of_rows(ctx, rows);
  double* of_rows = device_data<double>(saved);
  with_type({&logits}, [&](auto type) {
    using T = decltype(type);
    launch(classification_kernel<T>, extent(rows), kThreads, 0, ctx.stream, View<T>(logits),
           device_data<std::int32_t>(targets), classes, smoothing, of_rows);
  });
  launch(add_losses_kernel, 1, kLossThreads, 0, ctx.stream, static_cast<const double*>(of_rows),
         rows, device_data<double>(sum));
  if (!dlogits.defined()) return;
  with_type({&logits, &dlogits}, [&](auto type) {
    using T = decltype(type);
    launch(classification_gradient_kernel<T>, chunk_grid(rows, classes), chunk_block(classes), 0,
           ctx.stream, View<T>(logits), device_data<std::int32_t>(targets), classes, smoothing,
           static_cast<const double*>(of_rows), static_cast<const StepState*>(ctx.step_state.get()),
           View<T>(dlogits), rows, vectors_fit({&logits, &dlogits}, classes));
  });
}

void count_correct(Context& ctx, const Tensor& logits, const Tensor& targets,
                   const Tensor& counts) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const Tensor ranks = ranks_of_rows(ctx, rows);
  with_type({&logits}, [&](auto type) {
    using T = decltype(type);
    launch(ranks_kernel<T>, extent(rows), kThreads, 0, ctx.stream, View<T>(logits),
           device_data<std::int32_t>(targets), classes, device_data<std::int32_t>(ranks));
  });
  launch(count_ranks_kernel, 1, kLossThreads, 0, ctx.stream,
         static_cast<const std::int32_t*>(device_data<std::int32_t>(ranks)), rows, classes,
         device_data<std::int64_t>(counts));
}

}  // namespace trireme::ops::gpu
