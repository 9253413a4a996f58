// Seconds of a training step of a preset model on made-up tokens: forward, backward, clipping,
// AdamW. Started alone, or by mpiexec for a grid: train_step_bench PRESET BATCH CONTEXT fp32|bf16
// STEPS [MICRO [DATA PIPELINE TENSOR]]. Prints two lines: median step time, tokens/s, matrix
// products' GFLOP/s; and the largest peak of each kind of memory on any rank.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/models/gpt.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {
namespace {

struct Settings {
  std::string preset;
  std::int64_t batch, context, micro;
  DType compute;
  int steps;
  GridShape grid;
};

Settings settings_of(std::span<char*> arguments) {
  if (arguments.size() < 6) {
    throw ConfigError(
        "usage: train_step_bench PRESET BATCH CONTEXT fp32|bf16 STEPS [MICRO [DATA "
        "PIPELINE TENSOR]]");
  }
  const auto number = [&](std::size_t i, int fallback) {
    return i < arguments.size() ? std::atoi(arguments[i]) : fallback;
  };
  const int batch = number(2, 1);
  return {arguments[1],
          batch,
          number(3, 1),
          number(6, batch),
          std::string(arguments[4]) == "bf16" ? DType::kBF16 : DType::kF32,
          number(5, 1),
          {number(7, 1), number(8, 1), number(9, 1)}};
}

std::vector<nn::MicroBatch> made_up_batches(ops::Context& ctx, const Settings& s,
                                            const ProcessGrid& grid, std::int64_t vocabulary) {
  const parallel::MicroBatchShare mine =
      parallel::share_of(static_cast<int>(s.batch / s.micro), grid.shape().data, grid.data_index());
  std::vector<nn::MicroBatch> batches;
  for (int m = mine.first; m < mine.first + mine.count; ++m) {
    nn::MicroBatch batch;
    batch.batch = s.micro;
    batch.length = s.context;
    batch.training = true;
    const std::int64_t rows = s.micro * s.context;
    batch.tokens = ctx.allocate({rows}, DType::kI32);
    batch.targets = ctx.allocate({rows}, DType::kI32);
    batch.samples = ctx.allocate({s.micro}, DType::kI64);
    batch.loss_sum = ctx.allocate({1}, DType::kF64);
    batch.loss_sum.data<double>()[0] = 0.0;
    for (std::int64_t i = 0; i < s.micro; ++i)
      batch.samples.data<std::int64_t>()[i] = m * s.micro + i;
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto token = [&](std::int64_t at) {
        const auto index = static_cast<std::uint64_t>(m * rows + at);
        return static_cast<std::int32_t>(philox_uniform_at(1, index) * 0.999f *
                                         static_cast<float>(vocabulary));
      };
      batch.tokens.data<std::int32_t>()[i] = token(i);
      batch.targets.data<std::int32_t>()[i] = token(i + 1);
    }
    batches.push_back(batch);
  }
  return batches;
}

// Collective over the world.
void print_memory(Runtime& runtime, const ops::Context& ctx) {
  const MemoryStats stats = ctx.allocator->stats();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::vector<double> mib;
  for (const std::size_t bytes : stats.peak) mib.push_back(static_cast<double>(bytes) / 1048576.0);
  mib.push_back(static_cast<double>(stats.total_peak) / 1048576.0);
  mib.push_back(static_cast<double>(usage.ru_maxrss) / 1024.0);
  runtime.world().all_reduce_host(std::span<double>(mib), ReduceOp::kMax);
  if (runtime.rank() != 0) return;
  print_line(fmt::format(
      "memory of the largest rank, MiB: parameters {:.0f}, gradients {:.0f}, optimizer {:.0f}, "
      "activations {:.0f}, workspace {:.0f}, communication {:.0f}; together at once {:.0f}; "
      "resident {:.0f}",
      mib[0], mib[1], mib[2], mib[3], mib[4], mib[5], mib[6], mib[7]));
}

ExitStatus measure(Runtime& runtime, const Settings& s) {
  ops::Context ctx = ops::make_cpu_context(runtime.cores());
  models::GptConfig model = models::gpt_preset(s.preset);
  model.context = s.context;
  const nn::ModelPlan plan = models::gpt_plan(model);
  const ProcessGrid grid(runtime, s.grid);
  parallel::StepOptions options;
  options.stage.compute = s.compute;
  options.clip = 1.0f;
  parallel::TrainerStep trainer(ctx, grid, plan, options);
  std::vector<double> seconds;
  double loss = 0.0;
  for (int step = 0; step <= s.steps; ++step) {
    const auto batches = made_up_batches(ctx, s, grid, model.vocabulary);
    const Stopwatch watch;
    loss = trainer.train(batches, step + 1, 1e-4f, 1).loss;
    if (step > 0) {
      seconds.push_back(watch.seconds());
    } else if (runtime.rank() == 0) {
      print_line("first step done");  // it allocates, and perf/startup.py waits for it
    }
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const auto tokens = static_cast<double>(s.batch * s.context);
  if (runtime.rank() == 0) {
    print_line(fmt::format(
        "trireme {} B={} T={} {} {}, {} threads: {:.3f} s/step, {:.1f} tokens/s, {:.0f} GFLOP/s, "
        "loss {:.3f}; {}",
        s.preset, s.batch, s.context, name_of(s.compute), s.grid.to_string(), ctx.threads, median,
        tokens / median, plan.flops_per_token * tokens / median * 1e-9, loss,
        ops::matmul_description(ctx, s.compute)));
  }
  print_memory(runtime, ctx);
  return ExitStatus::kDone;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::Runtime runtime;
  runtime.run([&] {
    return trireme::measure(runtime, trireme::settings_of({argv, static_cast<std::size_t>(argc)}));
  });
}
