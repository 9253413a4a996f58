// Bound by memory: AdamW reads 16 bytes per element and writes 12, and the new weight; with split
// master values that is among them.
#include <type_traits>

#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/masters.h"
#include "ops/gpu/segments.h"
#include "ops/loss_scaling.h"
#include "ops/step_length.h"

namespace trireme::ops::gpu {
namespace {

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
struct AdamWSegment {
  AdamW rule;
  bool vector;
  Masters<T> master;
  const float* gradient;
  float* exp_avg;
  float* exp_avg_sq;
  std::int64_t elements;
};
template <class T>
using AdamWTable = SegmentTable<AdamWSegment<T>, 40>;

// The work of a segment is its blocks.
template <class T>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const StepState* state, const AdamWTable<T> table) {
  static_assert(kFitsInArguments<AdamWTable<T>>);
  if (state->finite == 0) return;
  const int segment = table.find(blockIdx.x);
  const AdamWSegment<T>& of = table.segments[segment];
  const AdamW rule = of.rule;
  const bool vector = of.vector;
  const std::int64_t at = chunk_of_thread() - table.begin[segment] * (kThreads * kChunk);
  const std::int64_t left = of.elements - at;
  const Masters<T> master = of.master;
  float* const exp_avg = of.exp_avg;
  float* const exp_avg_sq = of.exp_avg_sq;
  // Loaded before pow(), two halves spill registers on an A100.
  constexpr bool kLoadsLate = std::is_same_v<T, Split>;
  float p[kChunk], g[kChunk], m[kChunk], v[kChunk];
  if constexpr (!kLoadsLate) master.load(at, left, vector, p);
  load_chunk(of.gradient + at, left, vector, g);
  load_chunk(exp_avg + at, left, vector, m);
  load_chunk(exp_avg_sq + at, left, vector, v);
  TRIREME_SHARED(AdamWFactors, factors, 1);
  if (threadIdx.x == 0) {
    factors[0] = adamw_factors(rule, *state, state->learning_rate * rule.rate);
  }
  __syncthreads();
  const AdamWFactors f = factors[0];
  if (left <= 0) return;
  if constexpr (kLoadsLate) master.load(at, left, vector, p);
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
  master.store(at, left, vector, p);
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
    sgd_kernel(Sgd rule, const StepState* state, Masters<T> master, const float* gradient,
               float* velocity, const float* length, std::int64_t elements, bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float factor = gradient_factor(*state);
  const float learning_rate = state->learning_rate * rule.rate;
  const float along = length != nullptr ? *length : 1.0f;
  float p[kChunk], g[kChunk], v[kChunk] = {};
  master.load(at, left, vector, p);
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
  master.store(at, left, vector, p);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    lion_kernel(Lion rule, const StepState* state, Masters<T> master, const float* gradient,
                float* exp_avg, std::int64_t elements, bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float factor = gradient_factor(*state);
  const float learning_rate = state->learning_rate * rule.rate;
  float p[kChunk], g[kChunk], m[kChunk];
  master.load(at, left, vector, p);
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
  master.store(at, left, vector, p);
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
    step_along_kernel(StepAlong rule, const StepState* state, Masters<T> master,
                      View<Any> direction, const float* length, std::int64_t elements,
                      bool vector) {
  if (state->finite == 0) return;
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const float learning_rate = state->learning_rate * rule.rate;
  const float keep = 1.0f - learning_rate * rule.weight_decay;
  const float along = length != nullptr ? *length : learning_rate;
  float p[kChunk], d[kChunk];
  master.load(at, left, vector, p);
  direction.load(at, left, vector, d);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) p[i] = p[i] * keep - along * d[i];
  master.store(at, left, vector, p);
}

__global__ void loss_scale_kernel(LossScaling rule, StepState* state) {
  next_loss_scale(rule, *state);
}

__global__ void __launch_bounds__(kThreads)
    carry_over_kernel(LossScaling rule, const StepState* state, float* x, std::int64_t elements,
                      bool vector) {
  const float share = carried_share(rule, *state);
  const std::int64_t at = chunk_of_thread();
  if (share == 1.0f || at >= elements) return;
  float values[kChunk];
  load_chunk(x + at, elements - at, vector, values);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) values[i] *= share;
  store_chunk(x + at, elements - at, vector, values);
}

// Takes neighbouring parts whose master values and weights have one type off the front, as many as
// a launch takes, and queues their step.
template <class T>
void queue_adamw(Context& ctx, std::span<const AdamWPart>& parts) {
  const DType type = parts.front().weights.dtype(), masters = parts.front().master.dtype();
  AdamWTable<T> table;
  while (!parts.empty() && parts.front().weights.dtype() == type &&
         parts.front().master.dtype() == masters && !table.full()) {
    const auto& [rule, master, gradient, exp_avg, exp_avg_sq, weights] = parts.front();
    parts = parts.subspan(1);
    table.add({rule, vectors_fit({&master, &gradient, &exp_avg, &exp_avg_sq, &weights}, kChunk),
               Masters<T>(master, weights), device_data<float>(gradient),
               device_data<float>(exp_avg), device_data<float>(exp_avg_sq), master.elements()},
              blocks_of_chunks(master.elements()));
  }
  launch(adamw_kernel<T>, extent(table.work), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), table);
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

void adamw_step(Context& ctx, std::span<const AdamWPart> parts) {
  while (!parts.empty()) {
    const AdamWPart& first = parts.front();
    with_masters(first.master, first.weights,
                 [&]<class T>(const Masters<T>& /*first*/) { queue_adamw<T>(ctx, parts); });
  }
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length) {
  const std::int64_t elements = master.elements();
  with_masters(master, weights, [&]<class T>(const Masters<T>& masters) {
    launch(sgd_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), masters, device_data<float>(gradient),
           device_data<float>(velocity), device_data<float>(length), elements,
           vectors_fit({&master, &gradient, &velocity, &weights}, kChunk));
  });
}

void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights) {
  const std::int64_t elements = master.elements();
  with_masters(master, weights, [&]<class T>(const Masters<T>& masters) {
    launch(lion_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), masters, device_data<float>(gradient), device_data<float>(exp_avg),
           elements, vectors_fit({&master, &gradient, &exp_avg, &weights}, kChunk));
  });
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
  with_type({&weights}, [&](auto type) {
    using T = decltype(type);
    launch(schedule_free_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(master),
           device_data<float>(gradient), device_data<float>(gap), device_data<float>(exp_avg_sq),
           View<T>(weights), elements,
           vectors_fit({&master, &gradient, &gap, &exp_avg_sq, &weights}, kChunk));
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
  with_masters(master, weights, [&]<class T>(const Masters<T>& masters) {
    launch(step_along_kernel<T>, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
           ctx.step_state.get(), masters, View<Any>(direction), device_data<float>(length),
           elements, vectors_fit({&master, &direction, &weights}, kChunk));
  });
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  launch(loss_scale_kernel, 1, 1, 0, ctx.stream, rule, ctx.step_state.get());
}

void carry_over(Context& ctx, const LossScaling& rule, const Tensor& x) {
  const std::int64_t elements = x.elements();
  launch(carry_over_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(x), elements,
         vectors_fit({&x}, kChunk));
}

}  // namespace trireme::ops::gpu
