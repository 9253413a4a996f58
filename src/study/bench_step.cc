#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/resident_memory.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/setup/step_setup.h"
#include "trireme/study/bench.h"
#include "trireme/study/step_parts.h"
#include "trireme/tasks/task.h"
#include "trireme/tensor/kernel_trace.h"
#include "trireme/tensor/nvml.h"

namespace trireme::bench {
namespace {

constexpr float kLearningRate = 1e-4f;

// Seconds of this rank's steps, by phase.
struct Phases {
  double forward = 0.0, backward = 0.0, communication = 0.0, optimizer = 0.0;

  double* find(std::string_view name) {
    if (name == "forward") return &forward;
    if (name == "backward") return &backward;
    return name == "optimizer" ? &optimizer : nullptr;
  }
};

void add(Phases& phases, const Trace& trace) {
  const auto seconds = [](const Activity& a) {
    return static_cast<double>(a.end_ns - a.begin_ns) * 1e-9;
  };
  for (const Activity& activity : trace.activities) {
    if (activity.kind == Activity::Kind::kWait) {
      phases.communication += seconds(activity);
      continue;
    }
    double* const phase = phases.find(activity.name);
    if (phase == nullptr) continue;
    *phase += seconds(activity);
    for (const Activity& wait : trace.activities) {
      const bool inside = wait.kind == Activity::Kind::kWait &&
                          wait.begin_ns >= activity.begin_ns && wait.end_ns <= activity.end_ns;
      if (inside) *phase -= seconds(wait);
    }
  }
}

// Collective over the world.
void fill_in_memory(Runtime& runtime, const ops::Context& ctx, StepTimes& times) {
  const MemoryStats stats = ctx.allocator->stats();
  std::vector<double> most(stats.peak.begin(), stats.peak.end());
  most.push_back(static_cast<double>(stats.total_peak));
  most.push_back(peak_resident_bytes());
  runtime.world().all_reduce_host(std::span<double>(most), ReduceOp::kMax);
  std::copy_n(most.begin(), kMemoryUses, times.memory.begin());
  times.memory_at_once = most[kMemoryUses];
  times.resident = most[kMemoryUses + 1];
}

// The times of a series of steps on this rank, and their last result.
struct Series {
  std::vector<double> seconds;
  Phases phases;
  double loss = 0.0;
  std::string news;  // about graphs: whether a step was captured
};

// Collective over the world.
void fill_in_phases(Runtime& runtime, const Series& series, StepTimes& times) {
  const double steps = static_cast<double>(series.seconds.size()) * runtime.size();
  const Phases& phases = series.phases;
  std::array<double, 5> sums{phases.forward, phases.backward, phases.communication,
                             phases.optimizer, 0.0};
  for (const double one : series.seconds) sums[4] += one;
  runtime.world().all_reduce_host(std::span<double>(sums), ReduceOp::kSum);
  times.forward = sums[0] / steps;
  times.backward = sums[1] / steps;
  times.communication = sums[2] / steps;
  times.optimizer = sums[3] / steps;
  times.other = std::max(0.0, (sums[4] - sums[0] - sums[1] - sums[2] - sums[3]) / steps);
}

// Called in each step: when nothing of it is queued yet, and when all is, and a GPU is at it.
struct StepHooks {
  std::function<void()> begin = {}, queued = {};
};

class StepBench {
 public:
  StepBench(Runtime& runtime, ops::Context& ctx, const StepBenchOptions& options,
            const nn::ModelPlan& plan)
      : runtime_(runtime),
        ctx_(ctx),
        options_(options),
        grid_(runtime, options.grid, options.ranks),
        trainer_(ctx, grid_, plan, options.step),
        mine_(options.step.work.of(grid_.index(kDataAxes))) {
    trainer_.connect(options.micro, options.model.plan.length);
    for (const parallel::Micro& one : mine_) {
      batches_.push_back(task_.made_up_batch(ctx_, options_.model, one.number,
                                             static_cast<std::int64_t>(options_.micro)));
    }
  }

  // Collective over the world.
  Series run(int steps, bool traced, const StepHooks& hooks = {}) {
    Series series;
    for (int i = 0; i < steps; ++i) {
      for (const nn::MicroBatch& batch : batches_) {
        for (const Tensor* sum : {&batch.loss_sum, &batch.correct}) {
          if (sum->defined()) ops::fill(ctx_, *sum, 0.0f);
        }
      }
      ctx_.stream.synchronize();
      runtime_.world().barrier().wait_host();
      if (hooks.begin) hooks.begin();
      if (traced) runtime_.recorder().start_trace(ctx_.stream);
      const Stopwatch watch;
      const parallel::QueuedStep step = trainer_.queue(batches_, ++step_, kLearningRate, 1);
      if (hooks.queued) hooks.queued();
      series.loss = step.result(grid_).loss;
      if (!step.news().empty()) series.news = step.news();
      series.seconds.push_back(watch.seconds());
      if (traced) add(series.phases, runtime_.recorder().take_trace());
    }
    return series;
  }

 private:
  Runtime& runtime_;
  ops::Context& ctx_;
  const StepBenchOptions& options_;
  const tasks::Task& task_ = tasks::task_of(options_.model.request);
  const ProcessGrid grid_;
  parallel::TrainerStep trainer_;
  const std::vector<parallel::Micro> mine_;
  std::vector<nn::MicroBatch> batches_;  // of every step
  std::int64_t step_ = 0;
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Collective over the world. `uncaptured`: seconds of a step that is queued as it is. Steps are
// traced where they must not be captured.
void take_apart(ops::Context& ctx, StepBench& bench, int steps, double uncaptured,
                StepTimes& times) {
  const auto operations = std::make_shared<ops::OperationTimes>();
  const Series timed =
      bench.run(steps, true,
                {.begin = [&] { ctx.times = operations; }, .queued = [&] { ctx.times = nullptr; }});
  if (!ctx.cuda) {
    times.operations = operation_parts(*operations, steps, mean(timed.seconds));
    return;
  }
  // The host waits for each operation that it times, which is no part of a step.
  times.operations = operation_parts(*operations, steps, uncaptured);
  std::vector<cuda::HealthReport> samples;
  bench.run(steps, true, {.queued = [&] { samples.push_back(cuda::gpu_health()); }});
  times.gpu_state = gpu_state(samples, ctx.cuda->properties(ctx.device.index).pci_bus_id);
  // Last, since a library that has traced may not leave the process as it was.
  times.kernels =
      kernel_parts(cuda::open_kernel_trace, steps, [&](const auto& begin, const auto& marked) {
        const auto begin_marked = [&] {
          begin();
          ctx.times = marked;
        };
        const auto end_marked = [&] { ctx.times = nullptr; };
        const double seconds =
            bench.run(1, true, {.begin = begin_marked, .queued = end_marked}).seconds.front();
        ctx.stream.synchronize();  // a record of what still runs has no end
        return seconds;
      });
}

}  // namespace

StepTimes measure_step(Runtime& runtime, ops::Context& ctx, const StepBenchOptions& options) {
  const nn::ModelPlan& plan = options.model.plan;
  StepBench bench(runtime, ctx, options, plan);
  StepTimes times;
  times.graphs =
      bench.run(options.step.cuda_graphs ? 2 : 1, false).news;  // warm-up: allocates and captures
  if (options.warm) options.warm();
  const bool on_gpu = ctx.device.kind != DeviceKind::kCpu;
  Series series = bench.run(options.repeats, !on_gpu);
  times.loss = series.loss;
  // Events between pieces of GPU work cost time, so a GPU's phases are measured in further steps.
  const Series phases = on_gpu ? bench.run(options.repeats, true) : series;
  fill_in_phases(runtime, phases, times);
  runtime.world().all_reduce_host(std::span<double>(series.seconds), ReduceOp::kMax);
  times.step = median(std::move(series.seconds));
  const tasks::Task& task = tasks::task_of(options.model.request);
  times.unit = task.unit();
  const std::int64_t units = task.units_of_sample(models::sample_shape(options.model.request));
  times.units_per_second = static_cast<double>(options.batch * units) / times.step;
  times.flops = plan.flops_per_sample * static_cast<double>(options.batch) / times.step;
  fill_in_memory(runtime, ctx, times);
  if (options.parts) take_apart(ctx, bench, options.repeats, mean(phases.seconds), times);
  return times;
}

}  // namespace trireme::bench
