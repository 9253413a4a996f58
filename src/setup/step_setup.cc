#include "trireme/setup/step_setup.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// Collective over comm. Returns rank 0's text and, if others differ from it, the lowest such
// rank's.
std::string text_of_ranks(Communicator& comm, const std::string& mine) {
  const std::string first = comm.broadcast_text(mine, 0);
  const int lowest =
      comm.all_reduce_host(mine == first ? comm.size() : comm.rank(), ReduceOp::kMin);
  if (lowest == comm.size()) return first;
  return fmt::format("{}; on rank {} {}", first, lowest, comm.broadcast_text(mine, lowest));
}

// How a step's micro-batches form runs, and why whole gradients stay; empty: they do not.
struct Gradients {
  parallel::WorkSplit work;
  std::string why_whole;

  void choose_for(parallel::StepOptions& options) const {
    options.work = work;
    options.stage.whole_gradients = !why_whole.empty();
    options.stage.separates_uses = work.keeps_runs();
  }
};

// The bytes of gradients that a rank holds at most in such a step, without recomputation and with
// one chunk on each stage: neither must decide about runs, since both change no bit.
std::size_t held(const Config& config, const nn::ModelPlan& model, const GridShape& grid,
                 parallel::StepOptions step, const Gradients& gradients) {
  gradients.choose_for(step);
  const parallel::StepOptions usual;
  step.runs = usual.runs;
  step.schedule = usual.schedule;
  step.stage.chunks = usual.stage.chunks;
  step.stage.order = usual.stage.order;
  step.stage.cut = usual.stage.cut;
  return plan::most_gradients(
      {.model = model, .step = std::move(step), .grid = grid, .micro = config.batch.micro});
}

// Chooses, without batch.runs and from shard.stage 2 on, whether each micro-batch is reduced, or
// the sum of a data replica's.
Gradients smaller_gradients(const Config& config, const nn::ModelPlan& model, const GridShape& grid,
                            const parallel::StepOptions& step, const parallel::WorkSplit& work) {
  const int micro_batches = work.micro_batches(), replicas = work.replicas();
  if (micro_batches == replicas) return {work, ""};
  if (!std::has_single_bit(static_cast<unsigned>(replicas)) || micro_batches % replicas != 0) {
    return {work, fmt::format("{} data replicas are no power of two that divides {} micro-batches",
                              replicas, micro_batches)};
  }
  const Gradients whole{work, "they are smaller"};
  parallel::BatchRuns each = work.rule();
  each.runs = micro_batches;
  const Gradients divided{parallel::WorkSplit::even(micro_batches, replicas, each), ""};
  const std::size_t without = held(config, model, grid, step, whole),
                    with = held(config, model, grid, step, divided);
  if (with < without) return divided;
  return {work, fmt::format("gradients that are reduced after each micro-batch would take no less "
                            "({}, not {})",
                            size_text(with), size_text(without))};
}

Gradients gradients_of_step(const Config& config, const nn::ModelPlan& model, const GridShape& grid,
                            const parallel::StepOptions& step) {
  const Config::Shard& shard = config.shard;
  const auto work = work_of_step(
      config, grid,
      {runs_of_batch(config), shard.divides_gradients(), models::joins_replicas(config.model)});
  if (!shard.divides_gradients()) {
    return {work, fmt::format("shard.stage {} does not divide gradients", shard.stage)};
  }
  if (!work.keeps_runs()) return smaller_gradients(config, model, grid, step, work);
  if (work.runs_of_step() != work.micro_batches()) return {work, "a run has several micro-batches"};
  return {work, work.reduces_each_micro_batch()
                    ? ""
                    : "a data replica adds up its runs before it reduces them"};
}

// Whether what grid.cut auto has come to is of so many parts and blocks.
bool cut_fits(const std::vector<int>& cut, const nn::ModelPlan& model,
              const parallel::PipelineLayout& layout) {
  return std::ssize(cut) == layout.parts() &&
         std::accumulate(cut.begin(), cut.end(), std::int64_t{0}) == std::ssize(model.blocks);
}

// Returns all options but what gradients_of_step decides.
parallel::StepOptions options_without_runs(const Config& config, const nn::ModelPlan& model,
                                           const GridShape& grid) {
  parallel::StepOptions options;
  options.stage.sequence_parallel = config.grid.sequence_parallel;
  options.stage.compute = compute_type(config.run.precision);
  options.stage.block_scaled = config.run.precision == "fp8";
  options.stage.seed = static_cast<std::uint64_t>(config.run.seed);
  options.stage.trained = nn::trained_parameters(model, frozen_parameters(config.optim));
  options.schedule = config.grid.schedule;
  const auto layout =
      parallel::schedule_layout(config.grid.schedule, grid[Axis::kPipeline], config.grid.chunks);
  options.stage.chunks = layout.chunks;
  options.stage.order = layout.order;
  options.stage.cut = config.grid.cut.blocks();
  if (config.grid.cut.is_auto() && !cut_fits(options.stage.cut, model, layout)) {
    options.stage.cut.clear();
  }
  options.stage.whole_weights = !config.shard.divides_weights();
  options.stage.prefetch = config.shard.prefetch;
  if (config.recompute.mode == "full") {
    options.runs = {config.recompute.every, parallel::Recompute::kFull};
  } else if (config.recompute.mode == "selective") {
    options.runs.recompute = parallel::Recompute::kSelective;
  }
  options.runs.recomputed_blocks = config.recompute.blocks;
  options.reduce = config.comm.reduce == "bf16" ? DType::kBF16 : DType::kF32;
  options.reduce_bits = config.comm.compress == "int8" ? 8 : 32;
  options.clip_value = static_cast<float>(config.optim.clip_value);
  options.clip_each = static_cast<float>(config.optim.clip_each);
  options.clip = static_cast<float>(config.optim.clip);
  options.loss_scaling = loss_scaling(config);
  options.cuda_graphs = config.cuda.graphs;
  options.optimizer = optimizer_of(config);
  options.stage.weights_apart = options.optimizer.weights_apart();
  options.stage.split_masters = config.optim.masters == "split";
  return options;
}

}  // namespace

DType compute_type(const std::string& precision) {
  if (precision == "bf16" || precision == "fp8") return DType::kBF16;
  return precision == "fp16" ? DType::kF16 : DType::kF32;
}

ops::LossScaling loss_scaling(const Config& config) {
  if (config.run.precision != "fp16") return ops::LossScaling::fixed(1.0f);
  if (const std::optional<double> scale = fixed_loss_scale(config.optim.loss_scale)) {
    return ops::LossScaling::fixed(static_cast<float>(*scale));
  }
  return {.interval = config.optim.loss_scale_interval};
}

std::optional<parallel::MeetingRule> meeting_rule(const Config& config,
                                                  const nn::ModelPlan& model) {
  if (!steps_between_meetings(config)) return std::nullopt;
  const Config::Sync& sync = config.sync;
  if (sync.fragments > std::ssize(model.blocks)) {
    throw ConfigError(fmt::format("sync.fragments is {}, but the model has {} blocks",
                                  sync.fragments, model.blocks.size()));
  }
  const bool alone = config.grid.islands == 1 && !sync.is_member();
  if (alone && sync.outer == "average") return std::nullopt;
  const std::map<std::string_view, int> bits = {
      {"fp32", 32}, {"bf16", 16}, {"int8", 8}, {"int4", 4}, {"int2", 2}};
  parallel::MeetingRule rule{.fragments = sync.fragments, .bits = bits.at(sync.reduce)};
  if (sync.outer == "nesterov") {
    rule.rate = static_cast<float>(sync.lr);
    rule.momentum = static_cast<float>(sync.momentum);
  }
  return rule;
}

parallel::StepOptions step_options(const Config& config, const nn::ModelPlan& model,
                                   const GridShape& grid) {
  parallel::StepOptions options = options_without_runs(config, model, grid);
  options.optimizer.check(model, options.stage.trained.frozen);
  gradients_of_step(config, model, grid, options).choose_for(options);
  return options;
}

std::string why_whole_gradients_stay(const Config& config, const nn::ModelPlan& model,
                                     const GridShape& grid) {
  return gradients_of_step(config, model, grid, options_without_runs(config, model, grid))
      .why_whole;
}

ops::AttentionChoice attention_choice(Communicator& comm, const ops::Context& ctx,
                                      const models::Model& model, const GridShape& grid,
                                      const AttentionOfStep& step) {
  if (!model.attention) return {"none", "none"};
  const int tensor = grid[Axis::kTensor];
  ops::AttentionShape shape = *model.attention;
  shape.batch = step.micro;
  shape.heads /= tensor;
  shape.kv_heads = std::max<std::int64_t>(shape.kv_heads / tensor, 1);
  const ops::AttentionChoice mine =
      ops::attention_choice(ctx, shape, step.compute, step.masks_documents);
  // Nodes may differ in their libraries. On CPUs there is no library to choose.
  if (ctx.device.kind == DeviceKind::kCpu) return mine;
  return {text_of_ranks(comm, mine.by), text_of_ranks(comm, mine.text)};
}

}  // namespace trireme
