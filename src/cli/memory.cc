#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/nearest_setting.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/settled_micro.h"

#include "cli/commands.h"
#include "cli/memory_table.h"
#include "cli/outputs.h"
#include "cli/schedule_table.h"

namespace trireme::cli {
namespace {

// How many ranks are said to share a node, within which tensor ranks are proposed.
constexpr int kUsualRanksOfNode = 8;

struct MemoryArguments {
  std::string json, gpu_memory;
  Config config;
};

// What was dry-run, and what came of it.
struct Forecast {
  Config config;               // with batch.micro settled
  std::string micro;           // why it is what it is; empty: the keys say so
  bool names_threads = false;  // the configuration does
  plan::DryRunInput input;
  std::vector<plan::DryRunResult> results;
  std::optional<std::string> shortage;  // of a GPU's memory
};

std::int64_t bytes_of_gpu(const std::string& size) {
  constexpr std::int64_t kMostMib = std::int64_t{1} << 40;  // so that bytes fit 64 bits
  return std::min(read_mib(size, "--gpu-memory"), kMostMib) << 20;
}

// Settles batch.micro, if it is open. The memory of a node is not known here, so it limits no ranks
// that compute on CPUs. Returns what settle_micro_here returns.
std::string settle_micro(Config& config, const models::Model& model, const GridShape& grid,
                         std::int64_t gpu_bytes) {
  if (config.batch.micro.is_known()) return "";
  const SettledMicro settled =
      settled_micro_ahead(config, model, grid, {.on_gpus = gpu_bytes > 0, .gpu_bytes = gpu_bytes});
  config.batch.micro.settle(settled.samples);
  return settled.why;
}

// Dimensions of the grid that are left out are 1.
Forecast forecast(const MemoryArguments& given) {
  Forecast made;
  made.config = given.config;
  Config& config = made.config;
  check_config_without_data(config);
  write_out_micro(config);
  const int ranks = config.grid.shape().ranks();
  if (ranks > kMostGridRanks / config.grid.islands) {
    throw ConfigError(fmt::format(
        "the grid {}{} has more than {} ranks: give a smaller one", config.grid.shape().to_string(),
        config.grid.islands > 1 ? fmt::format(" on {} islands", config.grid.islands) : "",
        kMostGridRanks));
  }
  if (config.run.device == "cpu" && !given.gpu_memory.empty()) {
    throw ConfigError("--gpu-memory is of ranks with GPUs, but run.device is cpu: leave one out");
  }
  made.names_threads = config.run.threads.has_value();
  const models::Model model = models::resolve(config.model, facts_to_check(config));
  const GridShape grid = resolve_run_grid(config, ranks);
  const std::int64_t of_gpu = given.gpu_memory.empty() ? 0 : bytes_of_gpu(given.gpu_memory);
  if (of_gpu == 0 && config.run.device == "cuda") {
    throw ConfigError(
        "memory of ranks with GPUs (run.device cuda) needs --gpu-memory, as in --gpu-memory 80G");
  }
  made.micro = settle_micro(config, model, grid, of_gpu);
  check_model_fits_grid(config, model, grid);
  made.input = dry_run_input(config, model, grid, 1, of_gpu);
  made.results = plan::dry_run_all(made.input);
  if (made.input.device.on_gpus()) {
    const RunOfRanks run{.config = config,
                         .model = model,
                         .grid = grid,
                         .ranks_of_node = kUsualRanksOfNode,
                         .device = made.input.device};
    made.shortage =
        gpu_shortage(largest_of(made.results), made.input.device.gpu_memory >> 20,
                     [&](const FitsMemory& fits) { return nearest_setting(run, fits); });
  }
  return made;
}

double sent_bytes(const plan::DryRunResult& result) {
  double sum = 0.0;
  for (const DryTraffic& one : result.traffic) {
    if (one.operation != "receive") sum += static_cast<double>(one.bytes);
  }
  return sum;
}

void print_table(const Forecast& made) {
  const GridShape& grid = made.input.grid;
  const nn::TrainedParameters& trained = made.input.step.stage.trained;
  const auto number = [](std::int64_t count) { return short_number(static_cast<double>(count)); };
  const int islands = made.config.grid.islands;
  print_line(
      fmt::format("{} parameters{} on {}{}; memory in MiB, when most is held",
                  number(made.input.model.parameters),
                  trained.all() ? "" : fmt::format(", of which {} train,", number(trained.total())),
                  grid.to_string(), islands > 1 ? fmt::format(", one island of {}", islands) : ""));
  print_memory(grid, made.results);
  const bool on_gpus = made.input.device.on_gpus();
  if (!on_gpus && !made.names_threads) {
    print_line("workspace is that of one thread a rank: --run.threads N for more");
  }
  const bool captures =
      made.input.device.nccl || grid.ranks() * islands == 1;  // DryRank::why_no_capture
  const bool recomputes = made.input.recomputed_steps > 0;
  if (on_gpus && made.input.step.cuda_graphs && captures) {
    print_line(fmt::format(
        "a captured step (cuda.graphs) keeps what is taken, and {} memory of {} own besides; the "
        "graph itself takes memory that only CUDA knows of",
        recomputes ? "evaluation and optim.recompute_norms need" : "evaluation needs",
        recomputes ? "their" : "its"));
  }
  print_line(fmt::format("a rank needs {} MiB besides, for the program and its libraries",
                         mib_of(kProcessBytes)));
}

Json by_use(const std::array<std::size_t, kMemoryUses>& bytes) {
  Json object = Json::object();
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    object[name_of(static_cast<MemoryUse>(use))] = std::uint64_t{bytes[use]};
  }
  return object;
}

Json json_of_kind(const GridShape& grid, const plan::DryRunResult& result) {
  Json traffic = Json::array();
  for (const DryTraffic& one : result.traffic) {
    traffic.push_back(Json::object({{"communicator", one.group.name},
                                    {"operation", one.operation},
                                    {"ranks", static_cast<int>(one.ranks.size())},
                                    {"first_rank", one.ranks.front()},
                                    {"calls", one.calls},
                                    {"bytes", std::uint64_t{one.bytes}}}));
  }
  const ops::OperationCount work = result.operations.total();
  Json place = Json::object();
  for (const GridDimension& dimension : kGridDimensions) {
    place[dimension.name] = grid.index(result.place, dimension.axes);
  }
  return Json::object({{"place", std::move(place)},
                       {"ranks", result.ranks},
                       {"micro_batches", result.micro_batches},
                       {"peak_bytes", std::uint64_t{result.memory.total_peak}},
                       {"peak_at", point_text(result.memory.peak_point)},
                       {"at_peak", by_use(result.memory.at_peak)},
                       {"peaks", by_use(result.memory.peak)},
                       {"taken_bytes", std::uint64_t{result.memory.reserved}},
                       {"nccl_bytes", result.nccl.bytes},
                       {"step", Json::object({{"flops", work.flops},
                                              {"operation_bytes", work.bytes},
                                              {"sent_bytes", sent_bytes(result)},
                                              {"traffic", std::move(traffic)}})}});
}

void write_json(NamedOutput& output, const Forecast& made) {
  const GridShape& grid = made.input.grid;
  Json kinds = Json::array(), extents = Json::object();
  for (const plan::DryRunResult& result : made.results) kinds.push_back(json_of_kind(grid, result));
  for (const GridDimension& dimension : kGridDimensions) {
    extents[dimension.name] = grid.extent(dimension.axes);
  }
  const nn::TrainedParameters& trained = made.input.step.stage.trained;
  const std::int64_t parameters = made.input.model.parameters;
  const Json all =
      Json::object({{"format_version", 1},
                    {"parameters", parameters},
                    {"trained_parameters", trained.all() ? parameters : trained.total()},
                    {"grid", std::move(extents)},
                    {"islands", made.config.grid.islands},
                    {"micro", int{made.config.batch.micro}},
                    {"process_bytes", kProcessBytes},
                    {"kinds", std::move(kinds)},
                    {"schedules", json_of_schedules(made.config, made.input)}});
  output.write_whole(all.dump(1) + "\n");
}

// A rank that does not fit the memory that was named is a fault, which is told last.
ExitStatus show_memory(const MemoryArguments& given) {
  NamedOutput output(given.json);
  const Forecast made = forecast(given);
  if (!made.micro.empty()) print_line(made.micro);
  print_table(made);
  print_schedules(made.config, made.input);
  if (output.is_there()) write_json(output, made);
  if (made.shortage) throw ConfigError(*made.shortage);
  const auto warning = nccl_shortage(made.results, made.input.device.gpu_memory >> 20);
  if (made.input.device.on_gpus() && warning) print_line(*warning);
  return ExitStatus::kDone;
}

}  // namespace

Work parse_memory(const Arguments& arguments) {
  MemoryArguments given;
  Options options("trireme memory [--config FILE] [--SECTION.KEY VALUE]...", true);
  options.add("gpu-memory", given.gpu_memory, "size",
              "of each rank's GPU, in MiB or as 80G; empty: ranks compute on CPUs");
  options.add("json", given.json, "file",
              "the same for programs, with what a step computes and sends; empty: none");
  options.paths({"json"});
  add_config_keys(options, given.config);
  options.ignore_section("job");  // for `trireme job`
  options.parse(arguments, read_run_config);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("memory");
  begin_outputs({given.json});
  return {.alone = [given = std::move(given)] { return show_memory(given); }, .on_ranks = {}};
}

}  // namespace trireme::cli
