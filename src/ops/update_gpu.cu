// Bound by memory: AdamW reads 16 bytes per element and writes 12, and the new weight.
#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"
#include "ops/loss_scaling.h"
#include "ops/squares.h"
#include "ops/step_length.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kLimbThreads = 96;  // at least kExactLimbs
constexpr int kSharesAtOnce = 8;

unsigned blocks_of_chunks(std::int64_t elements) {
  return extent(blocks_for(elements, kThreads * kChunk));
}
__device__ std::int64_t chunk_of_thread() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
}

// A kernel's arguments are copied when it is queued. So there is no staging memory that could be
// overwritten before the device has read it.
__global__ void write_step_state_kernel(StepState* to, StepState state) {
  *to = state;
}
__global__ void write_step_inputs_kernel(StepState* to, StepInputs inputs) {
  to->step = inputs.step;
  to->random_key = inputs.random_key;
  to->learning_rate = inputs.learning_rate;
  to->gradient_scale = inputs.gradient_scale;
}

struct AdamWFactors {
  float gradient_factor;
  float step_size;           // the caller's, / (1 - beta1^t)
  float inverse_root_bias2;  // 1 / sqrt(1 - beta2^t)
  float keep;                // 1 - learning_rate * weight_decay
};

__device__ AdamWFactors adamw_factors(const AdamW& rule, const StepState& state, float step_size) {
  const float learning_rate = state.learning_rate * rule.rate;
  const auto t = static_cast<double>(state.updates);
  const double bias1 = 1.0 - pow(static_cast<double>(rule.beta1), t);
  const double bias2 = 1.0 - pow(static_cast<double>(rule.beta2), t);
  return {gradient_factor(state), static_cast<float>(static_cast<double>(step_size) / bias1),
          static_cast<float>(1.0 / sqrt(bias2)), 1.0f - learning_rate * rule.weight_decay};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamW rule, const StepState* state, float* master, const float* gradient,
                 float* exp_avg, float* exp_avg_sq, View<T> weights, std::int64_t elements,
                 bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  float p[kChunk], g[kChunk], m[kChunk], v[kChunk];
  load_chunk(master + at, left, vector, p);
  load_chunk(gradient + at, left, vector, g);
  load_chunk(exp_avg + at, left, vector, m);
  load_chunk(exp_avg_sq + at, left, vector, v);
  TRIREME_SHARED(AdamWFactors, factors, 1);
  if (threadIdx.x == 0) {
    factors[0] = adamw_factors(rule, *state, state->learning_rate * rule.rate);
  }
  __syncthreads();
  const AdamWFactors f = factors[0];
  if (left <= 0) return;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float d = g[i] * f.gradient_factor + rule.l2_penalty * p[i];
    m[i] = rule.beta1 * m[i] + (1.0f - rule.beta1) * d;
    v[i] = rule.beta2 * v[i] + (1.0f - rule.beta2) * d * d;
    const float denominator = sqrtf(v[i]) * f.inverse_root_bias2 + rule.epsilon;
    p[i] = p[i] * f.keep - f.step_size * m[i] / denominator;
  }
  store_chunk(exp_avg + at, left, vector, m);
  store_chunk(exp_avg_sq + at, left, vector, v);
  store_chunk(master + at, left, vector, p);
  if (weights.defined()) weights.store(at, left, vector, p);
}

__global__ void __launch_bounds__(kThreads)
    adamw_direction_kernel(AdamW rule, const StepState* state, const float* master,
                           const float* gradient, float* exp_avg, float* exp_avg_sq,
                           float* direction, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  TRIREME_SHARED(AdamWFactors, factors, 1);
  if (threadIdx.x == 0) factors[0] = adamw_factors(rule, *state, 1.0f);
  __syncthreads();
  const AdamWFactors f = factors[0];
  if (left <= 0) return;
  float p[kChunk], g[kChunk], m[kChunk], v[kChunk], d[kChunk] = {};
  if (state->finite != 0) {
    load_chunk(master + at, left, vector, p);
    load_chunk(gradient + at, left, vector, g);
    load_chunk(exp_avg + at, left, vector, m);
    load_chunk(exp_avg_sq + at, left, vector, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      g[i] *= f.gradient_factor;
      m[i] = rule.beta1 * m[i] + (1.0f - rule.beta1) * g[i];
      v[i] = rule.beta2 * v[i] + (1.0f - rule.beta2) * g[i] * g[i];
      const float denominator = sqrtf(v[i]) * f.inverse_root_bias2 + rule.epsilon;
      d[i] = f.step_size * m[i] / denominator + rule.weight_decay * p[i];
    }
    store_chunk(exp_avg + at, left, vector, m);
    store_chunk(exp_avg_sq + at, left, vector, v);
  }
  store_chunk(direction + at, left, vector, d);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(Sgd rule, const StepState* state, float* master, const float* gradient,
               float* velocity, View<T> weights, const float* length, std::int64_t elements,
               bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float factor = gradient_factor(*state);
  const float learning_rate = state->learning_rate * rule.rate;
  const float along = length != nullptr ? *length : 1.0f;
  float p[kChunk], g[kChunk], v[kChunk] = {};
  load_chunk(master + at, left, vector, p);
  load_chunk(gradient + at, left, vector, g);
  if (velocity != nullptr) load_chunk(velocity + at, left, vector, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float scaled = (g[i] * factor + rule.l2_penalty * p[i]) * along;
    v[i] = rule.momentum * v[i] + scaled;
    const float d = rule.nesterov ? scaled + rule.momentum * v[i] : v[i];
    p[i] -= learning_rate * (d + rule.weight_decay * p[i]);
  }
  if (velocity != nullptr) store_chunk(velocity + at, left, vector, v);
  store_chunk(master + at, left, vector, p);
  if (weights.defined()) weights.store(at, left, vector, p);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    lion_kernel(Lion rule, const StepState* state, float* master, const float* gradient,
                float* exp_avg, View<T> weights, std::int64_t elements, bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float factor = gradient_factor(*state);
  const float learning_rate = state->learning_rate * rule.rate;
  float p[kChunk], g[kChunk], m[kChunk];
  load_chunk(master + at, left, vector, p);
  load_chunk(gradient + at, left, vector, g);
  load_chunk(exp_avg + at, left, vector, m);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float d = g[i] * factor;
    const float u = rule.beta1 * m[i] + (1.0f - rule.beta1) * d;
    const float sign = u > 0.0f ? 1.0f : u < 0.0f ? -1.0f : u;
    p[i] -= learning_rate * (sign + rule.weight_decay * p[i]);
    m[i] = rule.beta2 * m[i] + (1.0f - rule.beta2) * d;
  }
  store_chunk(exp_avg + at, left, vector, m);
  store_chunk(master + at, left, vector, p);
  if (weights.defined()) weights.store(at, left, vector, p);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    schedule_free_kernel(ScheduleFree rule, const StepState* state, float* master,
                         const float* gradient, float* gap, float* exp_avg_sq, View<T> weights,
                         std::int64_t elements, bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  TRIREME_SHARED(ScheduleFreeFactors, factors, 1);
  if (threadIdx.x == 0) factors[0] = schedule_free_factors(rule, *state);
  __syncthreads();
  const ScheduleFreeFactors f = factors[0];
  if (left <= 0) return;
  float x[kChunk], g[kChunk], d[kChunk], v[kChunk];
  load_chunk(master + at, left, vector, x);
  load_chunk(gradient + at, left, vector, g);
  load_chunk(gap + at, left, vector, d);
  load_chunk(exp_avg_sq + at, left, vector, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    g[i] *= f.gradient_factor;
    v[i] = rule.beta2 * v[i] + (1.0f - rule.beta2) * g[i] * g[i];
    const float here = x[i] + f.part * d[i];
    const float step = g[i] / (sqrtf(v[i]) * f.inverse_root_bias2 + rule.epsilon);
    const float next = d[i] - f.learning_rate * (step + rule.weight_decay * here);
    x[i] += f.share * next;
    d[i] = (1.0f - f.share) * next;
    g[i] = x[i] + f.part * d[i];  // y
  }
  store_chunk(master + at, left, vector, x);
  store_chunk(gap + at, left, vector, d);
  store_chunk(exp_avg_sq + at, left, vector, v);
  weights.store(at, left, vector, g);
}

__global__ void __launch_bounds__(kThreads)
    schedule_free_weights_kernel(float part, const float* master, const float* gap,
                                 View<Any> weights, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  float x[kChunk], d[kChunk];
  load_chunk(master + at, left, vector, x);
  load_chunk(gap + at, left, vector, d);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] += part * d[i];
  weights.store(at, left, vector, x);
}

__global__ void __launch_bounds__(kThreads)
    average_kernel(Momentum rule, const StepState* state, const float* gradient, float* average,
                   View<Any> direction, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  float g[kChunk], m[kChunk], d[kChunk] = {};
  if (state->finite != 0) {
    const float factor = gradient_factor(*state);
    load_chunk(gradient + at, left, vector, g);
    load_chunk(average + at, left, vector, m);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      g[i] *= factor;
      m[i] = rule.momentum * m[i] + (1.0f - rule.momentum) * g[i];
      d[i] = rule.nesterov ? rule.momentum * m[i] + (1.0f - rule.momentum) * g[i] : m[i];
    }
    store_chunk(average + at, left, vector, m);
  }
  direction.store(at, left, vector, d);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    step_along_kernel(StepAlong rule, const StepState* state, float* master, View<Any> direction,
                      View<T> weights, const float* length, std::int64_t elements, bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float learning_rate = state->learning_rate * rule.rate;
  const float keep = 1.0f - learning_rate * rule.weight_decay;
  const float along = length != nullptr ? *length : learning_rate;
  float p[kChunk], d[kChunk];
  load_chunk(master + at, left, vector, p);
  direction.load(at, left, vector, d);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) p[i] = p[i] * keep - along * d[i];
  store_chunk(master + at, left, vector, p);
  if (weights.defined()) weights.store(at, left, vector, p);
}

__global__ void __launch_bounds__(kThreads)
    divide_by_root_kernel(const float* x, const double* sum, float epsilon, View<Any> y,
                          std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const auto factor = static_cast<float>(1.0 / (sqrt(*sum) + static_cast<double>(epsilon)));
  float values[kChunk];
  load_chunk(x + at, left, vector, values);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) values[i] *= factor;
  y.store(at, left, vector, values);
}

__global__ void count_average_kernel(WeightAverage rule, StepState* state) {
  if (counts_in_average(rule, *state)) ++state->averaged;
}

__global__ void __launch_bounds__(kThreads)
    average_weights_kernel(WeightAverage rule, const StepState* state, const float* value,
                           float* average, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (state->finite == 0 || left <= 0) return;
  const float share = share_of_weights(rule, *state), keep = 1.0f - share;
  float v[kChunk], a[kChunk];
  load_chunk(value + at, left, vector, v);
  load_chunk(average + at, left, vector, a);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) a[i] = keep * a[i] + share * v[i];
  store_chunk(average + at, left, vector, a);
}

__global__ void __launch_bounds__(kThreads)
    clip_values_kernel(const StepState* state, float* gradient, float limit,
                       std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  const float most = limit_in_memory(*state, limit), g = gradient[at];
  gradient[at] = g > most ? most : g < -most ? -most : g;
}

__global__ void __launch_bounds__(kThreads)
    clip_to_norm_kernel(const StepState* state, float* gradient, const double* sum, float limit,
                        std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) gradient[at] *= factor_to_norm(*state, *sum, limit);
}

__global__ void __launch_bounds__(kThreads)
    commit_state_kernel(const StepState* state, float keep, float* proposed, float* value,
                        std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  if (state->finite != 0) value[at] = keep * value[at] + proposed[at];
  proposed[at] = 0.0f;
}

// A warp adds up a unit: x begins `before` elements after the first unit does.
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* x, std::int64_t before, std::int64_t elements, double* sums,
                   std::int64_t units) {
  const std::int64_t unit =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= units) return;  // the whole warp
  const std::int64_t begin = unit * kSquaresUnit - before + threadIdx.x % 32;
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kSquaresUnit / 32; ++i) {
    const std::int64_t at = begin + i * 32;
    const double value = 0 <= at && at < elements ? static_cast<double>(x[at]) : 0.0;
    sum += value * value;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[unit] = sum;
}

// Each thread makes one limb of the exact sum of the block's share of the units. The threads fetch
// a tile of units together: one after the other, each would wait for memory again.
__global__ void __launch_bounds__(kLimbThreads)
    exact_shares_kernel(const double* sums, std::int64_t units, std::int64_t* shares) {
  TRIREME_SHARED(std::uint64_t, tile, kLimbThreads);
  const int limb = static_cast<int>(threadIdx.x);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kLimbThreads;
  std::int64_t total = 0;
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kLimbThreads; begin < units;
       begin += step) {
    const std::int64_t unit = begin + limb;
    if (unit < units) memcpy(&tile[limb], sums + unit, sizeof(double));
    __syncthreads();
    const int count = static_cast<int>(units - begin < kLimbThreads ? units - begin : kLimbThreads);
#pragma unroll 4
    for (int i = 0; i < count; ++i) total += exact_limb(tile[i], limb);
    __syncthreads();
  }
  if (limb < kExactLimbs)
    shares[static_cast<std::int64_t>(blockIdx.x) * kExactLimbs + limb] = total;
}

// One block, of kLimbThreads x kSharesAtOnce threads.
__global__ void __launch_bounds__(kLimbThreads* kSharesAtOnce)
    add_shares_kernel(const std::int64_t* shares, int count, std::int64_t* limbs) {
  TRIREME_SHARED(std::int64_t, parts, kLimbThreads * kSharesAtOnce);
  const int limb = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.y);
  std::int64_t total = 0;
  if (limb < kExactLimbs) {
#pragma unroll 4
    for (int i = lane; i < count; i += kSharesAtOnce) total += shares[i * kExactLimbs + limb];
  }
  parts[lane * kLimbThreads + limb] = total;
  __syncthreads();
  if (lane != 0 || limb >= kExactLimbs) return;
  for (int i = 1; i < kSharesAtOnce; ++i) total += parts[i * kLimbThreads + limb];
  limbs[limb] += total;
}

// A block for each sum, of one thread.
__global__ void round_exact_sum_kernel(std::int64_t* limbs, double* sums) {
  sums[blockIdx.x] = take_exact_value(limbs + static_cast<std::int64_t>(blockIdx.x) * kExactLimbs);
}

__global__ void step_length_kernel(StepLength rule, const StepState* state, const double* squares,
                                   float* length) {
  *length = length_of_step(rule, *state, squares[0], squares[1]);
}

__global__ void finish_norm_kernel(const double* sum, float clip, double* norm, StepState* state) {
  const double value = sqrt(*sum) * static_cast<double>(state->gradient_scale / state->loss_scale);
  *norm = value;
  state->squares_exponent = exponent_above(*sum);
  state->finite = isfinite(value) ? 1 : 0;
  state->updates += state->finite;
  state->rate_squares += square_of_rate(*state);
  const bool clips = clip > 0.0f && value > static_cast<double>(clip);
  state->clip_factor = clips ? static_cast<float>(static_cast<double>(clip) / value) : 1.0f;
}

__global__ void loss_scale_kernel(LossScaling rule, StepState* state) {
  next_loss_scale(rule, *state);
}

// Calls body(View<T>) with the weights, which receive the new master values. The view is undefined
// where both are the same memory.
template <class Body>
void with_published(const Tensor& weights, const Tensor& master, const Body& body) {
  with_type({&weights}, [&](auto type) {
    using T = decltype(type);
    body(weights.raw() == master.raw() ? View<T>() : View<T>(weights));
  });
}

}  // namespace

void write_step_state(Context& ctx, const StepState& state) {
  launch(write_step_state_kernel, 1, 1, 0, ctx.stream, ctx.step_state.get(), state);
}

void write_step_inputs(Context& ctx, const StepInputs& inputs) {
  launch(write_step_inputs_kernel, 1, 1, 0, ctx.stream, ctx.step_state.get(), inputs);
}

StepState read_step_state(Context& ctx) {
  StepState state;
  copy_to_host(&state, ctx.step_state.get(), sizeof(state), ctx.stream);
  return state;
}

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights) {
  const std::int64_t elements = master.elements();
  with_published(weights, master, [&]<class T>(View<T> to) {
    launch(adamw_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), device_data<float>(master), device_data<float>(gradient),
           device_data<float>(exp_avg), device_data<float>(exp_avg_sq), to, elements,
           vectors_fit({&master, &gradient, &exp_avg, &exp_avg_sq, &weights}, kChunk));
  });
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length) {
  const std::int64_t elements = master.elements();
  with_published(weights, master, [&]<class T>(View<T> to) {
    launch(sgd_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), device_data<float>(master), device_data<float>(gradient),
           device_data<float>(velocity), to, device_data<float>(length), elements,
           vectors_fit({&master, &gradient, &velocity, &weights}, kChunk));
  });
}

void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights) {
  const std::int64_t elements = master.elements();
  with_published(weights, master, [&]<class T>(View<T> to) {
    launch(lion_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), device_data<float>(master), device_data<float>(gradient),
           device_data<float>(exp_avg), to, elements,
           vectors_fit({&master, &gradient, &exp_avg, &weights}, kChunk));
  });
}

void step_length(Context& ctx, const StepLength& rule, const Tensor& squares,
                 const Tensor& length) {
  launch(step_length_kernel, 1, 1, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<double>(squares),
         device_data<float>(length));
}

void adamw_direction(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& direction) {
  const std::int64_t elements = master.elements();
  launch(adamw_direction_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(master),
         device_data<float>(gradient), device_data<float>(exp_avg), device_data<float>(exp_avg_sq),
         device_data<float>(direction), elements,
         vectors_fit({&master, &gradient, &exp_avg, &exp_avg_sq, &direction}, kChunk));
}

void schedule_free_step(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                        const Tensor& gradient, const Tensor& gap, const Tensor& exp_avg_sq,
                        const Tensor& weights) {
  const std::int64_t elements = master.elements();
  with_published(weights, master, [&]<class T>(View<T> to) {
    launch(schedule_free_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(master),
           device_data<float>(gradient), device_data<float>(gap), device_data<float>(exp_avg_sq),
           to, elements, vectors_fit({&master, &gradient, &gap, &exp_avg_sq, &weights}, kChunk));
  });
}

void schedule_free_weights(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                           const Tensor& gap, const Tensor& weights) {
  const std::int64_t elements = master.elements();
  launch(schedule_free_weights_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream,
         1.0f - rule.beta1, device_data<float>(master), device_data<float>(gap), View<Any>(weights),
         elements, vectors_fit({&master, &gap, &weights}, kChunk));
}

void average_gradient(Context& ctx, const Momentum& rule, const Tensor& gradient,
                      const Tensor& average, const Tensor& direction) {
  const std::int64_t elements = gradient.elements();
  launch(average_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(gradient),
         device_data<float>(average), View<Any>(direction), elements,
         vectors_fit({&gradient, &average, &direction}, kChunk));
}

void step_along(Context& ctx, const StepAlong& rule, const Tensor& master, const Tensor& direction,
                const Tensor& weights, const Tensor& length) {
  const std::int64_t elements = master.elements();
  with_published(weights, master, [&]<class T>(View<T> to) {
    launch(step_along_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), device_data<float>(master), View<Any>(direction), to,
           device_data<float>(length), elements,
           vectors_fit({&master, &direction, &weights}, kChunk));
  });
}

void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y) {
  const std::int64_t elements = x.elements();
  launch(divide_by_root_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream,
         device_data<float>(x), device_data<double>(sum), epsilon, View<Any>(y), elements,
         vectors_fit({&x, &y}, kChunk));
}

void count_average(Context& ctx, const WeightAverage& rule) {
  launch(count_average_kernel, 1, 1, 0, ctx.stream, rule, ctx.step_state.get());
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  const std::int64_t elements = value.elements();
  launch(average_weights_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(value),
         device_data<float>(average), elements, vectors_fit({&value, &average}, kChunk));
}

void clip_values(Context& ctx, const Tensor& gradient, float limit) {
  const std::int64_t elements = gradient.elements();
  launch(clip_values_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(gradient), limit,
         elements);
}

void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit) {
  const std::int64_t elements = gradient.elements();
  launch(clip_to_norm_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(gradient),
         device_data<double>(sum), limit, elements);
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  const std::int64_t elements = value.elements();
  launch(commit_state_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), keep, device_data<float>(proposed),
         device_data<float>(value), elements);
}

void add_sum_of_squares(Context& ctx, const Tensor& x, std::int64_t first, const Tensor& limbs) {
  const std::int64_t units = units_of_squares(first, x.elements());
  const Tensor sums = sums_of_units(ctx, units), shares = limbs_of_shares(ctx, units);
  launch(squares_kernel, extent(blocks_for(units, kThreads / 32)), kThreads, 0, ctx.stream,
         device_data<float>(x), first % kSquaresUnit, x.elements(), device_data<double>(sums),
         units);
  const auto count = shares_of_units(units);
  launch(exact_shares_kernel, extent(count), kLimbThreads, 0, ctx.stream, device_data<double>(sums),
         units, device_data<std::int64_t>(shares));
  launch(add_shares_kernel, 1, dim3(kLimbThreads, kSharesAtOnce), 0, ctx.stream,
         device_data<std::int64_t>(shares), static_cast<int>(count),
         device_data<std::int64_t>(limbs));
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums) {
  launch(round_exact_sum_kernel, extent(sums.elements()), 1, 0, ctx.stream,
         device_data<std::int64_t>(limbs), device_data<double>(sums));
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  launch(finish_norm_kernel, 1, 1, 0, ctx.stream, device_data<double>(sum), clip,
         device_data<double>(norm), ctx.step_state.get());
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  launch(loss_scale_kernel, 1, 1, 0, ctx.stream, rule, ctx.step_state.get());
}

}  // namespace trireme::ops::gpu
