// trireme bench ops: the operations of a model, each alone.
#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/step_setup.h"
#include "trireme/study/describe_device.h"

#include "cli/bench_arguments.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

// Returns the model with one block of each kind; neighbours that cost as much are of one kind.
models::Model one_block_of_each(models::Model model) {
  auto& blocks = model.plan.blocks;
  const auto same = [](const nn::BlockPlan& a, const nn::BlockPlan& b) {
    return a.flops == b.flops && a.bytes == b.bytes;
  };
  blocks.erase(std::unique(blocks.begin(), blocks.end(), same), blocks.end());
  return model;
}

void print_operation(const bench::OpRow& row, const bench::Roof& roof) {
  print_line(fmt::format("{:<22}{:>24}{:>12.3f}{:>10}{:>10.1f}{:>8.0f}", row.op, row.shape,
                         row.seconds * 1e3, or_dash(row.flops / row.seconds * 1e-9, "{:.1f}"),
                         row.bytes / row.seconds * 1e-9,
                         100.0 * roof.floor(row.flops, row.bytes) / row.seconds));
}

ExitStatus describe(Runtime& runtime, const BenchArguments& given, const ComputeDevice& device) {
  bench::DescribeOptions options{.name = std::filesystem::path(given.describe).stem().string(),
                                 .types = {DType::kF32, DType::kBF16},
                                 .report = [&](const std::string& line) {
                                   if (runtime.rank() == 0) print_line(line);
                                 }};
  const DType type = compute_type(given.model.dtype);
  if (std::ranges::count(options.types, type) == 0) options.types.push_back(type);
  options.seconds = given.seconds.value_or(options.seconds);
  NamedOutput file(runtime, given.describe);
  const plan::DeviceDescription described = bench::describe_device(runtime, device, options);
  file.write_whole(runtime, plan::write_device(described));
  options.report(fmt::format("{}: {} operations of {}", given.describe, described.operations.size(),
                             described.title));
  return ExitStatus::kDone;
}

}  // namespace

void check_bench_ops(const BenchArguments& given) {
  if (given.model.dtype == "fp8") {
    throw ConfigError("--dtype fp8 is for bench step: give --dtype bf16, or use bench step");
  }
  if (given.describe.empty()) {
    require_single_process("bench ops");
    if (given.seconds) throw ConfigError("--seconds of bench ops is that of --describe: give both");
    return;
  }
  if (!given.only.empty() || given.products || given.repeats || given.model.context ||
      given.graphs || given.cold || given.model.logits != "fp32" || !given.json.empty()) {
    throw ConfigError(
        "--describe measures operations of its own: leave out --only, --products, --graphs, "
        "--cold, --repeats, --context, --logits and --json");
  }
}

ExitStatus bench_ops(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  ComputeDevice device = choose_compute_device(runtime, given.device);
  if (!given.describe.empty()) return describe(runtime, given, device);
  ops::Context& ctx = device.context;
  if (!ctx.cuda && (given.graphs || given.cold)) {
    throw ConfigError(fmt::format(
        "--graphs and --cold of bench ops are of GPUs, and this computes on {}: leave them out",
        device.description.empty() ? device.name : device.description));
  }
  bench::OpsOptions options;
  options.model = model_of(given.model);
  options.batch = given.model.batch;
  options.dtype = compute_type(given.model.dtype);
  options.only = given.only;
  options.products = given.products;
  options.cold = given.cold;
  options.graphs = given.graphs;
  options.repeats = given.repeats.value_or(options.repeats);
  check_memory_here(
      dry_run_input(training_of(given), one_block_of_each(options.model), GridShape{}), runtime,
      device);
  const bench::Roof roof = bench::measure_roof(runtime.world(), ctx, options.dtype);
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, options.model, GridShape{},
                       {.micro = options.batch, .compute = options.dtype});
  print_line(fmt::format("{}, {}, {}, {} threads, {}, {}, attention by {}", given.model.preset,
                         samples_of(options.model, options.batch), given.model.dtype, ctx.threads,
                         ops::instruction_set(ctx), ops::matmul_description(ctx, options.dtype),
                         attention.text));
  print_line(roof_text(roof, given.model.dtype, ctx));
  print_line(fmt::format("{:<22}{:>24}{:>12}{:>10}{:>10}{:>8}", "op", "shape", "ms", "GFLOP/s",
                         "GB/s", "roof %"));
  std::vector<bench::OpRow> rows;
  bench::measure_ops(ctx, options, [&](const bench::OpRow& row) {
    print_operation(row, roof);
    rows.push_back(row);
  });
  json.write_whole(runtime, bench::ops_json(rows, roof, ctx.threads));
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
