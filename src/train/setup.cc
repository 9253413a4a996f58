#include "trireme/train/setup.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/softmax_loss.h"

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

// Returns the model for a configuration without a preset and keys: a small one that trains in
// minutes.
models::GptConfig built_in_model() {
  models::GptConfig model;
  model.layers = 6;
  model.width = 256;
  model.heads = 8;
  model.context = 128;
  return model;
}

nn::NormKind norm_kind(const std::string& word) {
  return word == "rms" ? nn::NormKind::kRms : nn::NormKind::kLayer;
}
nn::ActivationKind activation_kind(const std::string& word) {
  return word == "swiglu" ? nn::ActivationKind::kSwiglu : nn::ActivationKind::kGelu;
}
nn::PositionKind position_kind(const std::string& word) {
  return word == "rotary" ? nn::PositionKind::kRotary : nn::PositionKind::kLearned;
}

// Returns the grids of so many ranks that run.same_bits allows and that agree with `request`, the
// most data replicas first.
std::vector<GridShape> grids_of_same_bits(const Config& config, const GridRequest& request,
                                          int ranks) {
  const int vocabulary = config.model.vocabulary.value_or(1);  // that of the data is not known yet
  const std::int64_t blocks = resolve_model(config.model, vocabulary).layers + 2;
  const int micro_batches = config.batch.global / config.batch.micro;
  std::vector<GridShape> grids;
  for (int data = runs_of_batch(config); data >= 1; data /= 2) {
    GridRequest wanted = request;
    if (wanted.data.value_or(data) != data) continue;
    wanted.data = data;
    wanted.tensor = request.tensor.value_or(1);
    const int of_stage = data * *wanted.tensor;
    if (ranks % of_stage != 0) continue;
    const int stages = ranks / of_stage;
    if (wanted.pipeline.value_or(stages) != stages) continue;
    const auto layout = parallel::schedule_layout(config.grid.schedule, stages, config.grid.chunks);
    if (layout.parts() > blocks ||
        !parallel::takes_micro_batches(config.grid.schedule, layout, micro_batches / data)) {
      continue;
    }
    const int group = config.shard.group.value_or(data);
    if (config.shard.stage == 3 && data == 1) continue;
    if (config.shard.stage > 0 && data > 1 && data % group != 0) continue;
    wanted.pipeline = stages;
    grids.push_back(wanted.shape());
  }
  return grids;
}

// "4", "one of 4, 8, 16".
std::string one_of_text(const std::vector<int>& numbers) {
  return fmt::format("{}{}", numbers.size() == 1 ? "" : "one of ", fmt::join(numbers, ", "));
}

models::GptConfig preset_of(const Config::Model& model) {
  return model.preset ? models::gpt_preset(*model.preset) : built_in_model();
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
    request.tensor = grid[Axis::kTensor];
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

std::int64_t resolve_vocabulary(const Config::Model& model, std::int64_t preset,
                                std::optional<int> data) {
  if (data && model.vocabulary && *model.vocabulary != *data) {
    throw ConfigError(
        fmt::format("model.vocabulary is {}, but the data has {} tokens: leave it out, "
                    "and it follows the data",
                    *model.vocabulary, *data));
  }
  if (data) return *data;
  return model.vocabulary.value_or(static_cast<int>(preset));
}

// Interleaved schedules take micro-batches in groups.
void check_micro_batches(const Config& config, const GridShape& grid) {
  const auto layout =
      parallel::schedule_layout(config.grid.schedule, grid[Axis::kPipeline], config.grid.chunks);
  const int all = config.batch.global / config.batch.micro, replicas = grid.extent(kDataAxes);
  for (int replica = 0; replica < replicas; ++replica) {
    const int count = parallel::share_of(all, replicas, replica).count;
    if (parallel::takes_micro_batches(config.grid.schedule, layout, count)) continue;
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

}  // namespace

std::int64_t resolve_context(const Config::Model& model) {
  return model.context.value_or(static_cast<int>(preset_of(model).context));
}

models::GptConfig resolve_model(const Config::Model& model, std::optional<int> data_vocabulary) {
  const models::GptConfig preset = preset_of(model);
  models::GptConfig result = preset;
  result.layers = model.layers.value_or(static_cast<int>(preset.layers));
  result.width = model.width.value_or(static_cast<int>(preset.width));
  result.heads = model.heads.value_or(static_cast<int>(preset.heads));
  result.context = resolve_context(model);
  if (model.norm) result.norm = norm_kind(*model.norm);
  if (model.activation) result.activation = activation_kind(*model.activation);
  if (model.positions) result.positions = position_kind(*model.positions);
  result.tied = model.tied.value_or(preset.tied);
  result.bias = model.bias.value_or(preset.bias);
  result.dropout = static_cast<float>(model.dropout.value_or(static_cast<double>(preset.dropout)));
  // A preset's grouping of heads and its feed-forward width apply only to the preset's own sizes.
  const bool own_heads = model.preset && result.heads == preset.heads;
  result.kv_heads =
      model.kv_heads.value_or(static_cast<int>(own_heads ? preset.kv_heads : result.heads));
  const bool own_width =
      model.preset && result.width == preset.width && result.activation == preset.activation;
  const std::int64_t usual = models::default_hidden(result.activation, result.width);
  result.hidden = model.hidden ? *model.hidden : own_width ? preset.hidden : usual;
  if (model.rotary_theta) result.rotary_theta = static_cast<float>(*model.rotary_theta);
  result.vocabulary = resolve_vocabulary(model, preset.vocabulary, data_vocabulary);
  models::check(result);
  return result;
}

Config::Model written_out(const models::GptConfig& model) {
  Config::Model written;
  written.layers = static_cast<int>(model.layers);
  written.width = static_cast<int>(model.width);
  written.heads = static_cast<int>(model.heads);
  written.kv_heads = static_cast<int>(model.kv_heads);
  written.hidden = static_cast<int>(model.hidden);
  written.vocabulary = static_cast<int>(model.vocabulary);
  written.context = static_cast<int>(model.context);
  written.norm = model.norm == nn::NormKind::kRms ? "rms" : "layer";
  written.activation = model.activation == nn::ActivationKind::kSwiglu ? "swiglu" : "gelu";
  written.positions = model.positions == nn::PositionKind::kRotary ? "rotary" : "learned";
  written.tied = model.tied;
  written.bias = model.bias;
  written.dropout = static_cast<double>(model.dropout);
  written.rotary_theta = static_cast<double>(model.rotary_theta);
  return written;
}

GridShape with_shards(const GridShape& grid, const Config::Shard& shard) {
  if (shard.stage == 0) return grid;
  const int replicas = grid.extent(kDataAxes);
  if (replicas == 1 && shard.stage == 3) {
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

GridShape resolve_run_grid(const Config& config, int ranks) {
  const GridShape grid = with_shards(resolve_grid(config.grid, ranks), config.shard);
  const int micro_batches = config.batch.global / config.batch.micro;
  const int replicas = grid.extent(kDataAxes);
  if (micro_batches < replicas) {
    throw ConfigError(
        fmt::format("{} micro-batches a step (batch.global {} / batch.micro {}) are fewer "
                    "than {} data replicas: each needs one at least",
                    micro_batches, config.batch.global, config.batch.micro, replicas));
  }
  check_batch_runs(config, grid);
  check_micro_batches(config, grid);
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

void check_model_fits_grid(const Config& config, const models::GptConfig& model,
                           const GridShape& grid) {
  nn::check_heads_fit(model.heads, model.kv_heads, grid[Axis::kTensor]);
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;  // per step; the host holds them
  if (config.batch.global > kMostTokens / model.context) {
    throw ConfigError(fmt::format(
        "batch.global {} x model.context {} are {} tokens a step: at most {} can be",
        config.batch.global, model.context, config.batch.global * model.context, kMostTokens));
  }
  const std::int64_t rows = config.batch.micro * model.context;
  if (config.grid.sequence_parallel && rows % grid[Axis::kTensor] != 0) {
    throw ConfigError(
        fmt::format("grid.sequence_parallel splits the {} positions of a micro-batch "
                    "(batch.micro x model.context), which {} tensor ranks do not divide",
                    rows, grid[Axis::kTensor]));
  }
}

DType compute_type(const std::string& precision) {
  return precision == "bf16" ? DType::kBF16 : precision == "fp16" ? DType::kF16 : DType::kF32;
}

ops::LossScaling loss_scaling(const Config& config) {
  if (config.run.precision != "fp16") return ops::LossScaling::fixed(1.0f);
  if (const std::optional<double> scale = fixed_loss_scale(config.optim.loss_scale)) {
    return ops::LossScaling::fixed(static_cast<float>(*scale));
  }
  return {.interval = config.optim.loss_scale_interval};
}

parallel::StepOptions step_options(const Config& config) {
  parallel::StepOptions options;
  options.stage.sequence_parallel = config.grid.sequence_parallel;
  options.stage.compute = compute_type(config.run.precision);
  options.stage.seed = static_cast<std::uint64_t>(config.run.seed);
  options.schedule = config.grid.schedule;
  // The number of stages is that of the grid.
  const auto layout = parallel::schedule_layout(config.grid.schedule, 1, config.grid.chunks);
  options.stage.chunks = layout.chunks;
  options.stage.order = layout.order;
  options.stage.whole_weights = config.shard.stage < 3;
  options.stage.prefetch = config.shard.prefetch;
  options.batch_runs.runs = runs_of_batch(config);
  options.stage.separates_uses = options.batch_runs.runs != 0;
  options.batch_runs.reduces_each = config.shard.stage >= 2;
  if (config.recompute.mode == "full") {
    options.runs = {config.recompute.every, parallel::Recompute::kFull};
  } else if (config.recompute.mode == "selective") {
    options.runs.recompute = parallel::Recompute::kSelective;
  }
  options.reduce = config.comm.reduce == "bf16" ? DType::kBF16 : DType::kF32;
  options.clip = static_cast<float>(config.optim.clip);
  options.loss_scaling = loss_scaling(config);
  options.cuda_graphs = config.cuda.graphs;
  optim::OptimizerConfig& rule = options.optimizer;
  rule.kind = config.optim.name == "sgd" ? optim::OptimizerConfig::Kind::kSgd
                                         : optim::OptimizerConfig::Kind::kAdamW;
  rule.beta1 = static_cast<float>(config.optim.beta1);
  rule.beta2 = static_cast<float>(config.optim.beta2);
  rule.epsilon = static_cast<float>(config.optim.eps);
  rule.weight_decay = static_cast<float>(config.optim.weight_decay);
  rule.momentum = static_cast<float>(config.optim.momentum);
  return options;
}

ops::AttentionChoice attention_choice(Communicator& comm, const ops::Context& ctx,
                                      const models::GptConfig& model, const GridShape& grid,
                                      const AttentionOfStep& step) {
  const int tensor = grid[Axis::kTensor];
  const ops::AttentionChoice mine =
      ops::attention_choice(ctx,
                            {.batch = step.micro,
                             .length = model.context,
                             .heads = model.heads / tensor,
                             .kv_heads = std::max<std::int64_t>(model.kv_heads / tensor, 1),
                             .head_size = model.width / model.heads},
                            step.compute, step.masks_documents);
  // Nodes may differ in their libraries. On CPUs there is no library to choose.
  if (ctx.device.kind == DeviceKind::kCpu) return mine;
  return {text_of_ranks(comm, mine.by), text_of_ranks(comm, mine.text)};
}

std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only) {
  std::vector<TensorSlice> slices;
  const auto add = [&](const std::string& name, const Tensor& shard,
                       const nn::FlatGroup::Part& part) {
    const nn::Placement& placement = part.parameter->placement();
    const Tensor elements = nn::FlatGroup::view(shard, part);
    for (const nn::Slab& slab : nn::slabs_of(placement, part.elements)) {
      const std::int64_t begin = slab.at - part.elements.begin;
      slices.push_back(
          {name, placement.global, slab.start, slab.extent, std::nullopt,
           elements.flat_range(begin, begin + slab.local.elements()).reshape(slab.local),
           stage.stream()});
    }
  };
  const auto written = nn::written_parts(stage.groups());
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    for (const nn::FlatGroup::Part& part : owned_only ? written[i] : group.parts()) {
      const std::string& name = part.parameter->name();
      add("parameters/" + name, group.master(), part);
      if (optimizer == nullptr) continue;
      for (const auto& [state, shard] : optimizer->states(i)) {
        add(fmt::format("optimizer/{}/{}", name, state), shard, part);
      }
    }
  }
  return slices;
}

void read_checkpoint(ops::Context& ctx, const Checkpoint& checkpoint, parallel::Stage& stage,
                     std::span<const TensorSlice> slices) {
  const ProcessGrid& grid = stage.grid();
  if (stage.sharded()) {
    checkpoint.read(grid.world(), slices);  // the ranks of the data dimension want different parts
  } else {
    checkpoint.read({grid.world(), grid.comm(kModelAxes), &grid.comm(kDataAxes)}, slices);
  }
  stage.refresh_weights(ctx);
}

std::vector<TensorSlice> state_slices(ops::StepState& state, bool loss_scale) {
  std::vector<TensorSlice> slices;
  const auto add = [&slices](std::string name, auto& value) {
    slices.push_back(
        TensorSlice::whole("state/" + std::move(name), Tensor::wrap(std::span(&value, 1))));
  };
  add("updates", state.updates);
  if (!loss_scale) return slices;
  add("loss_scale", state.loss_scale);
  add("loss_scale_good_steps", state.good_steps);
  return slices;
}

nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training) {
  const auto real = static_cast<std::int64_t>(
      std::min(data.samples.size() - begin, static_cast<std::size_t>(micro)));
  const nn::HostMicroBatch host =
      nn::make_host_micro_batch(ctx, micro, context, !data.first_key.empty());
  const auto take_rows = [&](const std::vector<std::int32_t>& from, const Tensor& rows,
                             std::int32_t rest) {
    const auto values = rows.span<std::int32_t>();
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin) * context;
    std::fill(std::copy(first, first + real * context, values.begin()), values.end(), rest);
  };
  take_rows(data.tokens, host.tokens, 0);
  take_rows(data.targets, host.targets, ops::kMaskedTarget);
  if (host.first_key.defined()) take_rows(data.first_key, host.first_key, 0);
  for (std::int64_t b = 0; b < micro; ++b) {
    host.samples.data<std::int64_t>()[b] =
        b < real ? static_cast<std::int64_t>(data.samples[begin + static_cast<std::size_t>(b)]) : 0;
  }
  const auto targets = host.targets.span<std::int32_t>();
  const auto count = std::count_if(targets.begin(), targets.end(),
                                   [](std::int32_t target) { return target >= 0; });
  return host.to_device(ctx, count, training);
}

parallel::EvaluationResult evaluate(parallel::PipelineExecutor& executor, const TokenDataset& data,
                                    std::int64_t micro, bool mask_documents,
                                    std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  std::int64_t count = (samples + micro - 1) / micro;
  if (limit) count = std::min(count, *limit);
  ops::Context& ctx = executor.context();
  const ProcessGrid& grid = executor.stage().grid();
  const parallel::MicroBatchShare mine =
      parallel::share_of(static_cast<int>(count), grid.extent(kDataAxes), grid.index(kDataAxes));
  return parallel::evaluate(executor, mine.count, [&](int i) {
    const auto first = static_cast<std::uint64_t>((mine.first + i) * micro);
    std::vector<std::uint64_t> wanted(
        std::min(static_cast<std::uint64_t>(micro), data.samples() - first));
    std::iota(wanted.begin(), wanted.end(), first);
    return make_micro_batch(ctx, data.read(wanted, mask_documents), data.context(), 0, micro,
                            false);
  });
}

}  // namespace trireme
