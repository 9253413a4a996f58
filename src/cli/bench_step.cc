// trireme bench step: a training step on made-up samples.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/step_setup.h"
#include "trireme/study/step_parts.h"

#include "cli/bench_arguments.h"

namespace trireme::cli {
namespace {

// What of the request is unlike the defaults of training: ", shard.stage 3, recompute full".
std::string choices_text(const Config& config, const parallel::StepOptions& step) {
  std::string text;
  if (config.grid.schedule != "1f1b") text += ", " + config.grid.schedule;
  if (step.stage.chunks > 1) text += fmt::format(", {} chunks a stage", step.stage.chunks);
  if (config.shard.divides_state()) text += fmt::format(", shard.stage {}", config.shard.stage);
  if (config.recompute.mode != "none") text += ", recompute " + config.recompute.mode;
  if (config.run.same_bits) text += ", same bits on every grid";
  return text;
}

void print_step(const bench::StepTimes& times, const bench::Roof& roof) {
  const double whole =
      times.forward + times.backward + times.communication + times.optimizer + times.other;
  print_line(fmt::format("{:.1f} {}, {:.3f} ms a step, loss {:.3f}", times.units_per_second,
                         times.unit.rate(), times.step * 1e3, times.loss));
  print_line(fmt::format("{:.1f} GFLOP/s in products, {:.1f} % of the roof (MFU)",
                         times.flops * 1e-9, 100.0 * times.flops / roof.flops));
  const auto phase = [&](std::string_view name, double seconds) {
    print_line(
        fmt::format("{:<16}{:>12.3f}{:>8.1f}", name, seconds * 1e3, 100.0 * seconds / whole));
  };
  print_line(fmt::format("{:<16}{:>12}{:>8}", "phase", "ms", "%"));
  phase("forward", times.forward);
  phase("backward", times.backward);
  phase("communication", times.communication);
  phase("optimizer", times.optimizer);
  phase("other", times.other);
  print_line(fmt::format("{:<16}{:>12}", "memory", "MiB"));
  const auto memory = [&](std::string_view name, double bytes) {
    print_line(fmt::format("{:<16}{:>12.1f}", name, bytes / 1048576.0));
  };
  for (std::size_t i = 0; i < kMemoryUses; ++i) {
    memory(name_of(static_cast<MemoryUse>(i)), times.memory[i]);
  }
  memory("at once", times.memory_at_once);
  memory("resident", times.resident);
}

// The step taken apart, as far as it was. `roof`: of one rank.
void print_parts(const bench::StepTimes& times, const bench::Roof& roof, int ranks) {
  const auto print = [&](std::string what, const bench::StepParts& parts) {
    if (ranks > 1) what += " of rank 0";
    for (const std::string& line : bench::parts_table(what, parts, roof)) print_line(line);
  };
  if (times.operations) print("operation", *times.operations);
  if (times.kernels.parts) print("kernel", *times.kernels.parts);
  if (!times.kernels.why_not.empty()) {
    print_line("kernels are not traced, operations are timed alone: " + times.kernels.why_not);
  }
  if (times.gpu_state) print_line(bench::gpu_state_text(*times.gpu_state));
}

}  // namespace

void check_bench_step(const BenchArguments& given) {
  if (given.step.micro && given.model.batch % *given.step.micro != 0) {
    throw ConfigError(fmt::format("--batch {} is no multiple of --micro {}: give one that is",
                                  given.model.batch, *given.step.micro));
  }
}

ExitStatus bench_step(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  DeviceRequest request = given.device;
  request.fp8 = given.model.dtype == "fp8";
  ComputeDevice device = choose_compute_device(runtime, request);
  ops::Context& ctx = device.context;
  bench::StepBenchOptions options;
  options.model = model_of(given.model);
  options.batch = given.model.batch;
  options.micro = given.step.micro.value_or(given.model.batch);
  const Config config = training_of(given);
  options.grid = resolve_run_grid(config, runtime.size());
  check_model_fits_grid(config, options.model, options.grid);
  check_memory_here(dry_run_input(config, options.model, options.grid), runtime, device);
  options.step = step_options(config, options.model.plan, options.grid);
  options.repeats = given.repeats.value_or(options.repeats);
  options.parts = given.step.kernels;
  const DType dtype = options.step.stage.compute;
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, options.model, options.grid,
                       {.micro = options.micro, .compute = dtype});
  print_on_first(
      runtime,
      fmt::format("{}, {} in micro-batches of {}, {}, {}, {} threads each, {}, attention by "
                  "{}{}",
                  given.model.preset, samples_of(options.model, options.batch), options.micro,
                  given.model.dtype, options.grid.to_string(), ctx.threads,
                  ops::matmul_description(ctx, dtype), attention.text,
                  choices_text(config, options.step)));
  // Measures the step first, since the roof's memory stays cached and would count as resident.
  const bench::StepTimes times = bench::measure_step(runtime, ctx, options);
  if (!times.graphs.empty()) print_on_first(runtime, times.graphs);
  const bench::Roof roof = bench::measure_roof(runtime.world(), ctx, dtype);
  print_on_first(runtime, roof_text(roof, name_of(dtype), ctx));
  if (runtime.rank() == 0) {
    print_step(times, roof);
    print_parts(times, roof.of_one(runtime.size()), runtime.size());
  }
  json.write_whole(runtime, bench::step_json(times, roof, options.grid));
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
