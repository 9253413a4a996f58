// trireme bench comm|ops|step: the tables of study/bench.h.
#include "trireme/study/bench.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/parallel/schedule.h"
#include "trireme/setup/communication.h"
#include "trireme/setup/compute_device.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/step_setup.h"
#include "trireme/tasks/task.h"
#include "trireme/topology/planner.h"

#include "cli/actions.h"
#include "cli/commands.h"
#include "cli/outputs.h"

namespace trireme::cli {
namespace {

constexpr std::int64_t kContext = 256;  // the default; a model may have less

struct BenchArguments {
  std::string from = "1K", to = "16M", only, dtype = "fp32", json;
  std::string preset{models::families().front()->presets().front()};
  std::string algorithm = "table", network = "none", recompute = "none";
  std::string schedule = "1f1b";
  DeviceRequest device;
  std::optional<int> repeats, context, micro, pipeline, tensor, chunks;
  std::optional<double> seconds, drop;
  double pause = 0.0;
  int warmup = 5, batch = 4, factor = 4, fewest = 3, shard = 0;
  bool graphs = false, peer = false, products = false, same_bits = false;
};

// A measurement, and the flags that it takes.
struct Bench {
  std::string_view name;
  std::vector<std::string_view> flags;
  ExitStatus (*run)(Runtime& runtime, const BenchArguments& given, NamedOutput& json);
};

std::string or_dash(double value, std::string_view format) {
  return value > 0.0 ? fmt::format(fmt::runtime(format), value) : "-";
}

void print_on_first(const Runtime& runtime, const std::string& line) {
  if (runtime.rank() == 0) print_line(line);
}

models::Model model_of(const BenchArguments& given) {
  models::ModelRequest request{.keys = {{"preset", given.preset}}};
  for (const models::Family* family : models::families()) {
    if (std::ranges::count(family->presets(), given.preset) > 0) request.family = family->name();
  }
  const Shape sample = models::sample_shape(request);
  if (sample.rank() == 1) {  // a text
    const std::int64_t context = sample[0];
    request.keys["context"] = write_value(given.context.value_or(std::min(kContext, context)));
  } else if (given.context) {
    throw ConfigError(
        fmt::format("--context is the length of a text, but {} is for pictures", given.preset));
  }
  return models::resolve(request, {});
}

// Returns the model with one block of each kind; neighbours that cost as much are of one kind.
models::Model one_block_of_each(models::Model model) {
  auto& blocks = model.plan.blocks;
  const auto same = [](const nn::BlockPlan& a, const nn::BlockPlan& b) {
    return a.flops == b.flops && a.bytes == b.bytes;
  };
  blocks.erase(std::unique(blocks.begin(), blocks.end(), same), blocks.end());
  return model;
}

// Returns the configuration of a training run whose steps are as those of the request.
Config training_of(const BenchArguments& given) {
  Config config;
  config.batch.global = given.batch;
  config.batch.micro = given.micro.value_or(given.batch);
  config.run.precision = given.dtype;
  config.run.same_bits = given.same_bits;
  config.grid[Axis::kPipeline] = given.pipeline;
  config.grid[Axis::kTensor] = given.tensor;
  config.grid.schedule = given.schedule;
  config.grid.chunks = given.chunks;
  config.shard.stage = given.shard;
  config.recompute.mode = given.recompute;
  config.cuda.graphs = given.graphs;
  return config;
}

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

DType compute_type(const BenchArguments& given) {
  return trireme::compute_type(given.dtype);
}

std::string roof_text(const bench::Roof& roof, std::string_view dtype, const ops::Context& ctx) {
  return fmt::format("roof: {:.1f} GFLOP/s in a {} product, {:.1f} GB/s in a {}", roof.flops * 1e-9,
                     dtype, roof.bandwidth * 1e-9, ctx.cuda ? "copy" : "triad");
}

bool only_on_hosts(const BenchArguments& given) {
  return given.peer || given.algorithm != "table";
}

std::vector<bench::CommCarrier> carriers_of(const BenchArguments& given) {
  std::vector<bench::CommCarrier> carriers = bench::read_carriers(given.algorithm);
  if (given.peer) {
    for (const NativeCall call : {NativeCall::kBlocking, NativeCall::kTestAndYield}) {
      carriers.push_back({.name = std::string(name_of(call)), .native = call});
    }
  }
  return carriers;
}

double predicted_seconds(Predictor& predictor, const bench::CommRow& row) {
  if (!row.algorithm) return 0.0;
  const auto prediction =
      predict(predictor, row.op, *row.algorithm, static_cast<std::size_t>(row.bytes));
  return prediction ? prediction->seconds : 0.0;
}

std::string text_of(const bench::CommRow& row, int ranks, bool with_prediction) {
  const double bandwidth = row.algorithm_bandwidth() * 1e-9;
  // What a table has chosen; the other carriers say it with their names.
  const bool chose = row.algorithm && name_of(*row.algorithm) != row.carrier;
  return fmt::format(
      "{:<16}{:>12}{:>12.1f}{:>12.3f}{:>12.3f}{:>8}{}  {}{}", name_of(row.op), row.bytes,
      row.seconds * 1e6, bandwidth, bandwidth * bus_factor(row.op, ranks), row.wrong,
      with_prediction ? fmt::format("{:>14}", or_dash(row.predicted * 1e6, "{:.1f}")) : "",
      row.carrier, chose ? fmt::format(" ({})", name_of(*row.algorithm)) : "");
}

ExitStatus bench_comm(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  DeviceRequest request = given.device;
  if (only_on_hosts(given)) request.device = "cpu";
  ComputeDevice device = choose_compute_device(runtime, request);
  bench::CommOptions options;
  options.sizes = bench::sizes_between(bench::read_bytes(given.from, "--from"),
                                       bench::read_bytes(given.to, "--to"), given.factor);
  options.only = given.only;
  options.warmup = given.warmup;
  options.repeats = given.repeats.value_or(options.repeats);
  options.seconds = given.seconds.value_or(options.seconds);
  options.fewest = given.fewest;
  options.drop = given.drop.value_or(options.drop);
  options.pause = given.pause;
  options.carriers = carriers_of(given);
  const NetworkOfJob network = read_job_network(runtime, given.network);
  for (const std::string& remark : network.remarks) print_on_first(runtime, remark);
  std::optional<PredictedNetwork> predicted;  // on rank 0
  if (network.network) {
    options.planner = make_planner(*network.network, /*any_order=*/false);
    options.any_planner = make_planner(*network.network, /*any_order=*/true);
    if (runtime.rank() == 0) predicted.emplace(network.network->blocks, network.network->rates);
  }
  const int ranks = runtime.size();
  print_on_first(runtime,
                 fmt::format("{} ranks on {} nodes, fp32, {} repeats, {}, carried by {}", ranks,
                             runtime.nodes(), options.repeats, device.name, device.carrier));
  print_on_first(runtime, fmt::format("{:<16}{:>12}{:>12}{:>12}{:>12}{:>8}{}  {}", "op", "bytes",
                                      "time us", "algbw GB/s", "busbw GB/s", "#wrong",
                                      predicted ? "  predicted us" : "", "carrier"));
  std::vector<bench::CommRow> rows;
  bench::measure_comm(runtime, device.context, options, [&](bench::CommRow row) {
    if (device.carrier != "mpi") row.algorithm.reset();  // NCCL chooses for itself
    if (runtime.rank() == 0) {
      if (predicted) row.predicted = predicted_seconds(predicted->predictor, row);
      print_line(text_of(row, ranks, predicted.has_value()));
    }
    rows.push_back(std::move(row));
  });
  json.write_whole(runtime, bench::comm_json(rows, ranks));
  for (const bench::CommRow& row : rows) {
    if (row.wrong == 0) continue;
    throw InternalError(fmt::format("{} of {} bytes by {} left {} wrong elements", name_of(row.op),
                                    row.bytes, row.carrier, row.wrong));
  }
  return ExitStatus::kDone;
}

// "4 sequences of 128"
std::string samples_of(const models::Model& model, std::int64_t samples) {
  return tasks::samples_text(tasks::task_of(model.request), samples,
                             models::sample_shape(model.request));
}

ExitStatus bench_ops(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  ComputeDevice device = choose_compute_device(runtime, given.device);
  ops::Context& ctx = device.context;
  bench::OpsOptions options;
  options.model = model_of(given);
  options.batch = given.batch;
  options.dtype = compute_type(given);
  options.only = given.only;
  options.products = given.products;
  options.repeats = given.repeats.value_or(options.repeats);
  check_memory_here(
      dry_run_input(training_of(given), one_block_of_each(options.model), GridShape{}), runtime,
      device);
  const bench::Roof roof = bench::measure_roof(runtime.world(), ctx, options.dtype);
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, options.model, GridShape{},
                       {.micro = options.batch, .compute = options.dtype});
  print_line(fmt::format("{}, {}, {}, {} threads, {}, {}, attention by {}", given.preset,
                         samples_of(options.model, options.batch), given.dtype, ctx.threads,
                         ops::instruction_set(ctx), ops::matmul_description(ctx, options.dtype),
                         attention.text));
  print_line(roof_text(roof, given.dtype, ctx));
  print_line(fmt::format("{:<22}{:>24}{:>12}{:>10}{:>10}{:>8}", "op", "shape", "ms", "GFLOP/s",
                         "GB/s", "roof %"));
  std::vector<bench::OpRow> rows;
  bench::measure_ops(ctx, options, [&](const bench::OpRow& row) {
    print_line(fmt::format("{:<22}{:>24}{:>12.3f}{:>10}{:>10.1f}{:>8.0f}", row.op, row.shape,
                           row.seconds * 1e3, or_dash(row.flops / row.seconds * 1e-9, "{:.1f}"),
                           row.bytes / row.seconds * 1e-9,
                           100.0 * roof.floor(row.flops, row.bytes) / row.seconds));
    rows.push_back(row);
  });
  json.write_whole(runtime, bench::ops_json(rows, roof, ctx.threads));
  return ExitStatus::kDone;
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

ExitStatus bench_step(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  ComputeDevice device = choose_compute_device(runtime, given.device);
  ops::Context& ctx = device.context;
  bench::StepBenchOptions options;
  options.model = model_of(given);
  options.batch = given.batch;
  options.micro = given.micro.value_or(given.batch);
  const Config config = training_of(given);
  options.grid = resolve_run_grid(config, runtime.size());
  check_model_fits_grid(config, options.model, options.grid);
  check_memory_here(dry_run_input(config, options.model, options.grid), runtime, device);
  options.step = step_options(config, options.model.plan, options.grid);
  options.repeats = given.repeats.value_or(options.repeats);
  const DType dtype = options.step.stage.compute;
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, options.model, options.grid,
                       {.micro = options.micro, .compute = dtype});
  print_on_first(
      runtime,
      fmt::format("{}, {} in micro-batches of {}, {}, {}, {} threads each, {}, attention by "
                  "{}{}",
                  given.preset, samples_of(options.model, options.batch), options.micro,
                  given.dtype, options.grid.to_string(), ctx.threads,
                  ops::matmul_description(ctx, dtype), attention.text,
                  choices_text(config, options.step)));
  // Measures the step first, since the roof's memory stays cached and would count as resident.
  const bench::StepTimes times = bench::measure_step(runtime, ctx, options);
  if (!times.graphs.empty()) print_on_first(runtime, times.graphs);
  const bench::Roof roof = bench::measure_roof(runtime.world(), ctx, dtype);
  print_on_first(runtime, roof_text(roof, given.dtype, ctx));
  if (runtime.rank() == 0) print_step(times, roof);
  json.write_whole(runtime, bench::step_json(times, roof, options.grid));
  return ExitStatus::kDone;
}

const std::vector<Bench>& benches() {
  static const std::vector<Bench> table = {
      {"comm",
       {"from", "to", "factor", "warmup", "only", "algorithm", "peer", "network", "seconds",
        "fewest", "drop", "pause", "device", "backend", "repeats", "json"},
       bench_comm},
      {"ops",
       {"preset", "batch", "context", "dtype", "threads", "device", "only", "products", "repeats",
        "json"},
       bench_ops},
      {"step",
       {"preset", "batch", "context", "dtype", "threads", "device", "backend", "micro", "pipeline",
        "tensor", "schedule", "chunks", "shard", "recompute", "same-bits", "graphs", "repeats",
        "json"},
       bench_step},
  };
  return table;
}

void declare(Options& options, BenchArguments& given) {
  options.add("from", given.from, "bytes", "comm: smallest size", not_empty());
  options.add("factor", given.factor, "", "comm: each next size is so many times as much",
              between(2, limits::kCount));
  options.add("to", given.to, "bytes", "comm: largest size", not_empty());
  options.add("warmup", given.warmup, "", "comm: of each size, not measured",
              between(0, limits::kCount));
  options.add("only", given.only, "",
              "comm, ops: operations whose name holds this, for comm one of "
              "a list as in reduce,gather; empty: all");
  options.add("products", given.products, "", "ops: products of matrices alone");
  options.add("algorithm", given.algorithm, "",
              "comm: of our collectives, one or a list as in table,halving; table: what the "
              "communicator's table chooses; any: the same under comm.order any; all: both and "
              "every algorithm; others than table carry tensors of the host",
              not_empty());
  options.add("peer", given.peer, "",
              "comm: also MPI's own calls, blocking ones and ones that test and yield, on tensors "
              "of the host");
  options.add("network", given.network, "",
              "comm: what the table's algorithms are chosen for, as comm.network of train: auto, "
              "none, or files",
              not_empty());
  options.paths({"network"}, PathForm::kList);
  options.add("seconds", given.seconds, "s", "comm: of all repeats of a size; auto: no limit",
              above(0.0));
  options.add("fewest", given.fewest, "", "comm: repeats of each carrier whatever --seconds says",
              between(1, limits::kCount));
  options.add("drop", given.drop, "",
              "comm: who takes more than so many times the fastest carrier's time is not repeated; "
              "auto: all are",
              at_least(1.0));
  options.add("pause", given.pause, "s",
              "comm: without messages before each run, so that links which let bursts pass after a "
              "pause do so for all alike",
              at_least(0.0));
  options.add("repeats", given.repeats, "",
              "the median counts; auto: 20 for comm, 10 for ops, 5 for step",
              between(1, limits::kCount));
  options.add("graphs", given.graphs, "", "step: on a GPU, as a CUDA graph, but for its phases");
  std::vector<std::string> presets;
  for (const models::Family* family : models::families()) {
    for (const std::string_view name : family->presets()) presets.emplace_back(name);
  }
  options.add("preset", given.preset, "", "ops, step: the model that gives the shapes",
              one_of(presets));
  options.add("batch", given.batch, "samples", "ops: at once; step: of a step",
              between(1, limits::kSequences));
  options.add("context", given.context, "tokens",
              "ops, step: of a sequence; auto: 256, or the model's where that is less",
              between(1, limits::kTokens));
  options.add("dtype", given.dtype, "", "ops, step: computing type",
              one_of({"fp32", "bf16", "fp16"}));
  options.add("threads", given.device.threads, "", "ops, step: of each rank; auto: its cores",
              between(1, limits::kThreads));
  options.add("device", given.device.device, "",
              "where to compute; auto: on GPUs where every rank sees one, else on CPUs",
              one_of({"auto", "cpu", "cuda"}));
  options.add("backend", given.device.backend, "",
              "comm, step: what carries tensors of GPUs between ranks; as comm.backend of train",
              one_of({"auto", "mpi", "nccl"}));
  options.add("micro", given.micro, "samples", "step: of a micro-batch; auto: all of the batch",
              between(1, limits::kSequences));
  options.add("pipeline", given.pipeline, "ranks",
              "step: stages of the model; auto: 1, data takes the ranks that are left",
              between(1, limits::kRanks));
  options.add("tensor", given.tensor, "ranks", "step: parts of each stage; auto: 1",
              between(1, limits::kRanks));
  options.add("recompute", given.recompute, "",
              "step: what the backward computes again, as recompute.mode of train",
              one_of({"none", "selective", "full"}));
  options.add("schedule", given.schedule, "", "step: as grid.schedule of train",
              one_of(parallel::schedule_names()));
  options.add("chunks", given.chunks, "", "step: of each stage, as grid.chunks of train",
              between(1, limits::kLayers));
  options.add("shard", given.shard, "", "step: ZeRO's stage, as shard.stage of train",
              between(0, 3));
  options.add("same-bits", given.same_bits, "",
              "step: sums that have the same bits on every grid, as run.same_bits of train");
  options.add("json", given.json, "file", "the same figures for programs; empty: none");
  options.paths({"json"});
}

// Reports requests that no rank can fulfil, before any rank starts.
void check(const Bench& bench, const BenchArguments& given) {
  if (bench.name == "comm" &&
      bench::read_bytes(given.from, "--from") > bench::read_bytes(given.to, "--to")) {
    throw ConfigError(fmt::format("--from {} is more than --to {}", given.from, given.to));
  }
  if (bench.name == "comm") carriers_of(given);
  if (bench.name == "comm" && only_on_hosts(given) && given.device.device == "cuda") {
    throw ConfigError(
        "--peer and --algorithm measure tensors of the host; leave out --device cuda");
  }
  if (bench.name == "step" && given.micro && given.batch % *given.micro != 0) {
    throw ConfigError(fmt::format("--batch {} is no multiple of --micro {}: give one that is",
                                  given.batch, *given.micro));
  }
  check_backends(given.device);
  if (bench.name == "ops") require_single_process("bench ops");
}

}  // namespace

Work parse_bench(const Arguments& arguments) {
  BenchArguments given;
  std::vector<std::string> words;
  Options options("trireme bench comm|ops|step [--KEY VALUE]...");
  options.add_positional("WHAT", words,
                         "comm: collectives of the ranks that the launcher started; ops: the "
                         "operations of a model, alone; step: a training step on made-up samples",
                         {"comm", "ops", "step"});
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  const Bench& bench = find_only_action("bench", benches(), words);
  refuse_flags_of_others("bench", bench, options, arguments);
  check(bench, given);
  begin_outputs({given.json});
  return {.alone = {}, .on_ranks = [&bench, given = std::move(given)](Runtime& runtime) {
            NamedOutput json(runtime, given.json);
            return bench.run(runtime, given, json);
          }};
}

}  // namespace trireme::cli
