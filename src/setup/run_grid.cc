#include "trireme/setup/run_grid.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/shares.h"
#include "trireme/comm/dry_rank.h"
#include "trireme/ops/block_scaled.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {
namespace {

// Returns the grids of so many ranks that run.same_bits allows and that agree with `request`, the
// most data replicas first.
std::vector<GridShape> grids_of_same_bits(const Config& config, const GridRequest& request,
                                          int ranks) {
  // What the data say is not known yet.
  const auto blocks = static_cast<int>(models::resolve(config.model, {}).plan.blocks.size());
  const int micro_batches = config.batch.global / config.batch.micro;
  std::vector<GridShape> grids;
  for (int data = runs_of_batch(config); data >= 1; data /= 2) {
    GridRequest wanted = request;
    if (wanted[kDataAxes].value_or(data) != data) continue;
    wanted[kDataAxes] = data;
    wanted[Axis::kTensor] = request[Axis::kTensor].value_or(1);
    const int of_stage = data * *wanted[Axis::kTensor];
    if (ranks % of_stage != 0) continue;
    const int stages = ranks / of_stage;
    if (wanted[Axis::kPipeline].value_or(stages) != stages) continue;
    const auto layout = parallel::schedule_layout(config.grid.schedule, stages, config.grid.chunks);
    if (layout.parts() > blocks ||
        !parallel::takes_micro_batches(config.grid.schedule, layout, micro_batches / data)) {
      continue;
    }
    const int group = config.shard.group.value_or(data);
    if (config.shard.divides_weights() && data == 1) continue;
    if (config.shard.divides_state() && data > 1 && data % group != 0) continue;
    wanted[Axis::kPipeline] = stages;
    grids.push_back(wanted.shape());
  }
  return grids;
}

// "4", "one of 4, 8, 16".
std::string one_of_text(const std::vector<int>& numbers) {
  return fmt::format("{}{}", numbers.size() == 1 ? "" : "one of ", fmt::join(numbers, ", "));
}

void check_batch_runs(const Config& config, const GridShape& grid) {
  const Config::Batch& batch = config.batch;
  const int micro_batches = batch.global / batch.micro, replicas = grid.extent(kDataAxes);
  const std::vector<int> possible = parallel::possible_batch_runs(micro_batches, replicas);
  const int runs = runs_of_batch(config);
  if (runs == 0 || std::ranges::binary_search(possible, runs)) return;
  if (config.run.same_bits) {
    std::vector<std::string> others;
    GridRequest request;
    request[Axis::kTensor] = grid[Axis::kTensor];
    for (const GridShape& other : grids_of_same_bits(config, request, grid.ranks())) {
      others.push_back(other.extents_text(" x "));
    }
    throw ConfigError(fmt::format(
        "run.same_bits: {} data replicas do not divide {} runs of micro-batches; {} would",
        replicas, runs,
        others.empty()
            ? fmt::format("{} data replicas",
                          std::bit_floor(static_cast<unsigned>(std::min(replicas, runs))))
            : fmt::format("with {} ranks grid {}", grid.ranks(), fmt::join(others, " or "))));
  }
  throw ConfigError(fmt::format(
      "batch.runs is {}, but {} micro-batches a step (batch.global / batch.micro) on {} data "
      "replica{} can be {} runs",
      runs, micro_batches, replicas, replicas == 1 ? "" : "s", one_of_text(possible)));
}

void check_shares(const Config& config, const GridShape& grid) {
  const BatchBalance& balance = config.batch.balance;
  if (balance.is_even()) return;
  const int replicas = grid.extent(kDataAxes);
  const auto speeds = static_cast<int>(balance.speeds().size());
  if (!balance.is_auto() && replicas == 1) {
    throw ConfigError(
        "batch.balance lists speeds, but there is one data replica and nothing to balance: leave "
        "it out");
  }
  if (!balance.is_auto() && speeds != replicas) {
    throw ConfigError(
        fmt::format("batch.balance lists {} speed{}, but there are {} data replicas: give one for "
                    "each",
                    speeds, speeds == 1 ? "" : "s", replicas));
  }
  const int runs = runs_of_batch(config);
  if (runs != 0 && runs != replicas) {
    throw ConfigError(fmt::format(
        "batch.balance makes the share of each of the {} data replicas one run, but batch.runs is "
        "{}: leave one out",
        replicas, runs));
  }
}

// Interleaved schedules take micro-batches in groups.
void check_micro_batches(const Config& config, const GridShape& grid) {
  const auto layout =
      parallel::schedule_layout(config.grid.schedule, grid[Axis::kPipeline], config.grid.chunks);
  const int all = config.batch.global / config.batch.micro, replicas = grid.extent(kDataAxes);
  const auto takes = [&](int count) {
    return parallel::takes_micro_batches(config.grid.schedule, layout, count);
  };
  const BatchBalance& balance = config.batch.balance;
  if (balance.is_auto() && replicas > 1 && !takes(layout.stages + 1)) {
    throw ConfigError(fmt::format(
        "grid.schedule {} takes micro-batches in groups of one for each of the {} stages, which "
        "the shares of batch.balance auto are not: give another schedule, or leave it out",
        config.grid.schedule, layout.stages));
  }
  const parallel::WorkSplit work = work_of_step(config, grid, {});
  for (int replica = 0; replica < replicas; ++replica) {
    const int count = work.count(replica);
    if (takes(count)) continue;
    if (work.has_shares()) {
      throw ConfigError(fmt::format(
          "grid.schedule {} takes micro-batches in groups of one for each of the {} stages, but "
          "batch.balance gives a data replica {} a step: give other speeds, or another schedule",
          config.grid.schedule, layout.stages, count));
    }
    const std::int64_t group = std::int64_t{replicas} * layout.stages;  // of all replicas
    const std::int64_t below = all / group * group, sample = config.batch.micro;
    const std::string fits =
        below == 0 ? fmt::format("{}", group * sample)
                   : fmt::format("{} or {}", below * sample, (below + group) * sample);
    throw ConfigError(fmt::format(
        "grid.schedule {} takes micro-batches in groups of one for each of the {} stages, but a "
        "data replica has {} a step: a batch.global of {} would be whole groups",
        config.grid.schedule, layout.stages, count, fits));
  }
}

// What the hosts hold of a step: the numbers that the model sees of its samples.
void check_step_size(const Config& config, const models::Model& model) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 32, kMostValues = std::int64_t{1} << 40;
  const Shape sample = models::sample_shape(model.request);
  const std::int64_t numbers = sample.elements(), global = config.batch.global;
  if (sample.rank() == 1 && global > kMostTokens / numbers) {
    throw ConfigError(
        fmt::format("batch.global {} x model.context {} are {} tokens a step: at most {} can be",
                    global, numbers, global * numbers, kMostTokens));
  }
  const std::int64_t rows = model.plan.rows;
  if (rows > 0 && global > kMostTokens / rows) {
    throw ConfigError(fmt::format(
        "batch.global {} x {} positions of a picture are {} positions a step: at most {} can be",
        global, rows, global * rows, kMostTokens));
  }
  if (global > kMostValues / numbers) {
    throw ConfigError(fmt::format(
        "batch.global {} x {} x {} pixels of 3 colours are {} numbers a step: at most {} can be",
        global, sample[0], sample[1], global * numbers, kMostValues));
  }
}

// A stage may have fewer, so that the key goes with every grid.
void check_recomputed_blocks(const Config::Recompute& recompute, const models::Model& model) {
  const auto blocks = std::ssize(model.plan.blocks);
  if (!recompute.blocks || *recompute.blocks <= blocks) return;
  throw ConfigError(
      fmt::format("recompute.blocks is {}, but the model has {} blocks, of which the first and the "
                  "last are the embedding and the head: auto recomputes all",
                  *recompute.blocks, blocks));
}

}  // namespace

GridShape with_shards(const GridShape& grid, const Config::Shard& shard) {
  if (!shard.divides_state()) return grid;
  const int replicas = grid.extent(kDataAxes);
  if (replicas == 1 && shard.divides_weights()) {
    throw ConfigError(
        "shard.stage 3 divides the weights among data replicas, but grid.data is 1: start more "
        "ranks, or leave shard.stage out");
  }
  const int group = replicas == 1 ? 1 : shard.group.value_or(replicas);
  if (replicas % group != 0) {
    std::vector<int> would_fit;
    for (int ranks = 2; ranks <= replicas; ++ranks) {
      if (replicas % ranks == 0) would_fit.push_back(ranks);
    }
    throw ConfigError(fmt::format("shard.group {} does not divide the {} data replicas: {} {}",
                                  group, replicas, fmt::join(would_fit, ", "),
                                  would_fit.size() == 1 ? "does" : "do"));
  }
  GridShape shape = grid;
  shape[Axis::kShard] = group;
  shape[Axis::kReplicate] = replicas / group;
  return shape;
}

parallel::WorkSplit work_of_step(const Config& config, const GridShape& grid,
                                 const parallel::BatchRuns& runs) {
  const int micro_batches = config.batch.global / config.batch.micro;
  const int replicas = grid.extent(kDataAxes);
  const BatchBalance& balance = config.batch.balance;
  const std::vector<int>& shares = balance.shares();
  if (std::ssize(balance.speeds()) == replicas && micro_batches >= replicas) {
    return parallel::WorkSplit::of_shares(shares_by_speed(micro_batches, balance.speeds()), runs);
  }
  if (std::ssize(shares) == replicas &&
      std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == micro_batches) {
    return parallel::WorkSplit::of_shares(shares, runs);
  }
  return parallel::WorkSplit::even(micro_batches, replicas, runs);
}

parallel::WorkSplit largest_work(const Config& config, const parallel::WorkSplit& work) {
  const int replicas = work.replicas();
  if (!config.batch.balance.is_auto() || replicas == 1 || work.micro_batches() < replicas) {
    return work;
  }
  const int most = BatchBalance::most_of_auto(work.micro_batches(), replicas);
  std::vector<int> shares = even_shares(work.micro_batches() - most, replicas - 1);
  shares.push_back(most);
  return parallel::WorkSplit::of_shares(shares, work.rule());
}

void check_joined_replicas(const Config& config, const GridShape& grid) {
  const int micro_batches = config.batch.global / config.batch.micro;
  const int replicas = grid.extent(kDataAxes);
  if (config.run.same_bits) {
    throw ConfigError(
        "run.same_bits: statistics over all data replicas (model.batch_norm sync) are others on "
        "other grids: take model.batch_norm replica");
  }
  if (micro_batches % replicas != 0) {
    int fewer = replicas;
    while (micro_batches % fewer != 0) --fewer;
    throw ConfigError(
        fmt::format("model.batch_norm sync: {} data replicas do not divide the {} micro-batches of "
                    "a step (batch.global {} / batch.micro {}); {} would",
                    replicas, micro_batches, config.batch.global, int{config.batch.micro}, fewer));
  }
  const int runs = config.batch.runs.value_or(replicas);
  const auto work = parallel::WorkSplit::even(micro_batches, replicas, {runs, false, true});
  const bool one_by_one = work.reduces_each_micro_batch();
  if (runs == replicas || one_by_one) return;
  throw ConfigError(
      fmt::format("model.batch_norm sync deals micro-batches to the {} data replicas one by one, "
                  "which cannot be {} runs (batch.runs): leave it out",
                  replicas, runs));
}

namespace {

// The number of batch.micro is known.
void check_batch(const Config& config, const GridShape& grid) {
  const int micro_batches = config.batch.global / config.batch.micro;
  const int replicas = grid.extent(kDataAxes);
  if (micro_batches < replicas) {
    throw ConfigError(
        fmt::format("{} micro-batches a step (batch.global {} / batch.micro {}) are fewer "
                    "than {} data replicas: each needs one at least",
                    micro_batches, config.batch.global, int{config.batch.micro}, replicas));
  }
  if (models::joins_replicas(config.model)) check_joined_replicas(config, grid);
  check_shares(config, grid);
  check_batch_runs(config, grid);
  check_micro_batches(config, grid);
}

// The positions of a micro-batch are rows, and terms of weight gradients, of products of blocks.
void check_fp8_positions(const Config& config, std::int64_t of_sample) {
  const std::int64_t rows = config.batch.micro * of_sample;
  if (rows % ops::kScaledSide == 0) return;
  throw ConfigError(fmt::format(
      "run.precision fp8 multiplies blocks of {} positions, but a micro-batch has {} (batch.micro "
      "{} x {} of a sample): make batch.micro a multiple of {}, or give run.precision bf16",
      ops::kScaledSide, rows, int{config.batch.micro}, of_sample,
      ops::kScaledSide / std::gcd(ops::kScaledSide, of_sample)));
}

// Builds a block of each kind on a dry tensor rank, where layers check their extents.
void check_fp8_extents(const nn::ModelPlan& plan, int tensor_ranks) {
  DryRank rank({.size = tensor_ranks});
  const ProcessGrid grid(rank, {1, 1, tensor_ranks});
  nn::BuildContext build{.grid = grid, .block_scaled = true};
  std::set<std::string> kinds;
  std::vector<std::unique_ptr<nn::Block>> built;  // what blocks share is that of the first
  for (const nn::BlockPlan& block : plan.blocks) {
    if (!block.kind.empty() && !kinds.insert(block.kind).second) continue;
    built.push_back(block.build(build));
  }
}

void check_fp8(const Config& config, const models::Model& model, const GridShape& grid,
               std::int64_t positions_of_sample) {
  if (!model.attention) {
    throw ConfigError(fmt::format(
        "run.precision is fp8, but models of model.family {} have no layers for it: give "
        "run.precision bf16",
        config.model.family));
  }
  check_fp8_positions(config, positions_of_sample);
  check_fp8_extents(model.plan, grid[Axis::kTensor]);
}

}  // namespace

std::vector<int> possible_micro(const Config& config, const GridShape& grid) {
  const int global = config.batch.global, replicas = grid.extent(kDataAxes);
  const bool divides = global % replicas == 0;
  std::vector<int> possible;
  Config tried = config;
  const auto consider = [&](int size) {
    const int micro_batches = global / size;
    if (micro_batches < replicas || (divides && micro_batches % replicas != 0)) return;
    try {
      tried.batch.micro = size;
      check_batch(tried, grid);
      possible.push_back(size);
    } catch (const ConfigError&) {
    }
  };
  for (int size = 1; size <= global / size; ++size) {
    if (global % size != 0) continue;
    consider(size);
    if (global / size != size) consider(global / size);
  }
  std::ranges::sort(possible, std::greater());
  return possible;
}

int ranks_of_island(const Config& config, int ranks) {
  const int islands = config.grid.islands;
  if (ranks % islands == 0) return ranks / islands;
  int fewer = std::min(islands, ranks);
  while (ranks % fewer != 0) --fewer;
  throw ConfigError(
      fmt::format("grid.islands is {}, which does not divide {} ranks into equal islands; {} would",
                  islands, ranks, fewer));
}

GridShape resolve_run_grid(const Config& config, int ranks) {
  const GridShape grid = with_shards(resolve_grid(config.grid, ranks), config.shard);
  Config settled = config;
  write_out_micro(settled);
  if (!settled.batch.micro.is_known()) {
    if (!possible_micro(settled, grid).empty()) return grid;
    settled.batch.micro = 1;  // it is refused for what refuses the others, too
  }
  check_batch(settled, grid);
  return grid;
}

std::string keep_same_bits(Config& config, int ranks) {
  const GridShape grid = resolve_grid(config.grid, ranks);
  const int replicas = grid.extent(kDataAxes), runs = runs_of_batch(config);
  if (!config.run.same_bits || runs % replicas == 0) return "";
  const std::vector<GridShape> others = grids_of_same_bits(config, config.grid, ranks);
  if (others.empty()) {
    config.run.same_bits = false;
    config.batch.runs.reset();
    return fmt::format(
        "run.same_bits: the bits part here: {} data replicas do not divide {} runs of "
        "micro-batches, and no grid of {} ranks with grid.* as given has data replicas that do",
        replicas, runs, ranks);
  }
  config.grid.ask_for(others.front());
  return fmt::format(
      "run.same_bits: grid {} in place of {}, whose {} data replicas do not divide "
      "{} runs of micro-batches",
      others.front().to_string(), grid.extents_text(" x "), replicas, runs);
}

void check_model_fits_grid(const Config& config, const models::Model& model,
                           const GridShape& grid) {
  model.check_grid(grid);
  const StageCut& cut = config.grid.cut;
  if (!cut.is_auto() && !cut.blocks().empty()) {
    const auto layout =
        parallel::schedule_layout(config.grid.schedule, grid[Axis::kPipeline], config.grid.chunks);
    parallel::parts_of_model(model.plan, layout, cut.blocks());
  }
  check_recomputed_blocks(config.recompute, model);
  check_step_size(config, model);
  const std::int64_t context = model.plan.length;
  const std::int64_t of_sample = model.plan.rows == 0 ? context : model.plan.rows;
  const std::int64_t rows = config.batch.micro * of_sample;
  if (config.grid.sequence_parallel && rows % grid[Axis::kTensor] != 0) {
    throw ConfigError(fmt::format(
        "grid.sequence_parallel splits the {} positions of a micro-batch "
        "(batch.micro x {}), which {} tensor ranks do not divide",
        rows, model.plan.rows == 0 ? "model.context" : fmt::format("{} of a sample", of_sample),
        grid[Axis::kTensor]));
  }
  if (config.run.precision == "fp8") check_fp8(config, model, grid, of_sample);
}

}  // namespace trireme
