#include "support/equality.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "trireme/base/philox.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::testing {
namespace {

constexpr std::uint64_t kSeed = 11;
// Small enough that ten steps do not magnify rounding (at 0.1 the norm after a fresh embedding
// magnifies it a hundredfold), large enough that each weight moves by far more than the tolerance.
constexpr float kSgdRate = 0.02f;

nn::ModelPlan plan_of(const EqualityCase& test) {
  return test.other ? test.other->plan : models::gpt_plan(test.model);
}

parallel::StepOptions step_options(const EqualityCase& test, const std::string& rule) {
  parallel::StepOptions options;
  options.stage.trained = nn::trained_parameters(plan_of(test), test.frozen);
  options.stage.sequence_parallel = test.sequence_parallel;
  options.stage.seed = kSeed;
  options.stage.compute = test.compute;
  options.stage.split_masters = test.split_masters;
  options.stage.block_scaled = test.block_scaled;
  options.stage.whole_weights = test.whole_weights;
  options.stage.whole_gradients = test.whole_gradients;
  options.stage.prefetch = test.prefetch;
  options.schedule = test.schedule;
  const auto layout =
      parallel::schedule_layout(test.schedule, test.grid[Axis::kPipeline], test.chunks);
  options.stage.chunks = layout.chunks;
  options.stage.order = layout.order;
  options.runs = test.runs;
  options.work = test.work();
  options.stage.separates_uses = test.separates_uses && options.work.keeps_runs();
  options.optimizer = optimizer_of_rule(rule);
  options.stage.weights_apart = options.optimizer.weights_apart();
  if (test.compute == DType::kF16) options.loss_scaling = {};
  return options;
}

nn::MicroBatch batch_of(ops::Context& ctx, const EqualityCase& test, int number, bool training) {
  return test.other ? test.other->make_batch(ctx, number, training)
                    : make_batches(ctx, test.batch, number, 1, training).front();
}

// Returns this replica's micro-batches of a step. Every step has different data.
std::vector<nn::MicroBatch> share(ops::Context& ctx, const ProcessGrid& grid,
                                  const EqualityCase& test, int step, bool training) {
  std::vector<nn::MicroBatch> batches;
  for (const parallel::Micro& one : test.work().of(grid.index(kDataAxes))) {
    batches.push_back(batch_of(ctx, test, step * test.micro_batches + one.number, training));
  }
  return batches;
}

// Collective over the group's shards. Returns (extent) fp32 of what this is the rank's shard of.
Tensor whole_of(ops::Context& ctx, const ProcessGrid& grid, const nn::FlatGroup& group,
                const Tensor& own) {
  Tensor shard = own;
  if (own.dtype() != DType::kF32) {
    shard = ctx.allocate(own.shape(), DType::kF32);
    ops::cast(ctx, own, shard);
  }
  if (group.sharding().count() == 1) return shard;
  const Tensor whole = ctx.allocate({group.extent()}, shard.dtype());
  grid.comm(Axis::kShard).all_gather(ctx.stream, shard, whole).wait_on(ctx.stream);
  return whole;
}

enum class Which { kGradient, kWeight };
LocalParts parts_of(ops::Context& ctx, const parallel::Stage& stage, Which which, double scale) {
  LocalParts parts;
  const bool gradients = which == Which::kGradient;
  for (const nn::FlatGroup* group : gradients ? stage.trained_groups() : stage.groups()) {
    const Tensor whole = whole_of(ctx, stage.grid(), *group,
                                  gradients ? group->gradient_shard() : group->read_values(ctx));
    for (const nn::Parameter* parameter : group->parameters()) {
      const Tensor tensor = group->view(whole, *parameter);
      LocalPart part{parameter->placement(),
                     {tensor.data<float>(), tensor.data<float>() + tensor.elements()}};
      for (float& value : part.values) value = static_cast<float>(value * scale);
      parts.emplace(parameter->name(), std::move(part));
    }
  }
  return parts;
}

// Sits in front of the reducer. It sees each gradient when it contains this rank's last
// contribution of the step, and may change it before the reducer learns of that contribution.
class Interceptor : public nn::GradientListener {
 public:
  struct Hooks {
    std::function<void(const nn::Parameter&)> complete;
    std::function<void(const nn::FlatGroup&)> begins, reducing;
  };
  Interceptor(nn::GradientListener& next, int micro_batches, Hooks hooks)
      : next_(next), micro_batches_(micro_batches), hooks_(std::move(hooks)) {}
  void prepare(const nn::FlatGroup& group) override {
    next_.prepare(group);
    hooks_.begins(group);
  }
  void contributed(const nn::Parameter& parameter) override {
    const nn::FlatGroup& group = parameter.group();
    if (++seen_[&parameter] == parameter.uses() * micro_batches_) hooks_.complete(parameter);
    next_.contributed(parameter);
    if (++of_group_[&group] == group.uses() * micro_batches_) hooks_.reducing(group);
  }

 private:
  nn::GradientListener& next_;
  int micro_batches_;
  Hooks hooks_;
  std::map<const nn::Parameter*, int> seen_;
  std::map<const nn::FlatGroup*, int> of_group_;
};

// Counts the targets of all replicas in the first step.
double targets_of(ops::Context& ctx, const EqualityCase& test) {
  std::int64_t count = 0;
  for (int number = 0; number < test.micro_batches; ++number) {
    const nn::MicroBatch batch = batch_of(ctx, test, number, true);
    const auto targets = batch.field(nn::kTargets).span<std::int32_t>();
    count += std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  }
  return static_cast<double>(count);
}

// Calls `visit` for each element of a part, in row-major order, with the element's index in the
// global tensor.
template <class Part, class Visit>
void for_each_element(Part& part, const Visit& visit) {
  const nn::Placement& p = part.placement;
  for (std::int64_t flat = 0; flat < p.extent.elements(); ++flat) {
    std::int64_t rest = flat, local = 0, global = 0, local_stride = 1, global_stride = 1;
    for (int i = p.global.rank() - 1; i >= 0; --i) {
      const std::int64_t index = rest % p.extent[i];
      rest /= p.extent[i];
      local += index * local_stride;
      global += (index + p.offset[static_cast<std::size_t>(i)]) * global_stride;
      local_stride *= p.local[i];
      global_stride *= p.global[i];
    }
    visit(part.values[static_cast<std::size_t>(local)], global);
  }
}

// Returns the largest magnitude of an element outside the part's extent.
double largest_padding(const nn::Placement& placement, const Tensor& local) {
  LocalPart part{placement, {local.data<float>(), local.data<float>() + local.elements()}};
  // Zeroes everything but the padding.
  for_each_element(part, [](float& value, std::int64_t) { value = 0.0f; });
  double largest = 0.0;
  for (const float value : part.values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// The states of a group, each as large as its shard; the more where rules keep different ones.
Tensors states_in_memory(ops::Context& ctx, const nn::FlatGroup& group,
                         std::span<const optim::Optimizer::Piece> pieces) {
  Tensors all;
  for (int i = 0; i < 2; ++i) {
    all.push_back(ctx.allocate({group.sharding().shard_extent()}, DType::kF32));
    ops::fill(ctx, all.back(), 0.0f);
    for (const optim::Optimizer::Piece& piece : pieces) {
      if (i >= std::ssize(piece.states)) continue;
      const FlatRange& at = piece.elements;
      copy(piece.states[static_cast<std::size_t>(i)].second,
           all.back().flat_range(at.begin, at.end), ctx.stream);
    }
  }
  return all;
}

double largest_padding(ops::Context& ctx, const parallel::Stage& stage,
                       const optim::Optimizer& optimizer) {
  double largest = 0.0;
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    std::vector<Tensor> all{whole_of(ctx, stage.grid(), group, group.read_values(ctx))};
    if (group.trains()) {
      all.push_back(whole_of(ctx, stage.grid(), group, group.gradient_shard()));
      for (const Tensor& state : states_in_memory(ctx, group, optimizer.pieces(i))) {
        all.push_back(whole_of(ctx, stage.grid(), group, state));
      }
    }
    for (const Tensor& flat : all) {
      for (const float value : flat.flat_range(group.elements(), group.extent()).span<float>()) {
        largest = std::max(largest, std::abs(double{value}));
      }
    }
    for (const nn::Parameter* parameter : group.parameters()) {
      for (const Tensor& flat : all) {
        largest = std::max(largest,
                           largest_padding(parameter->placement(), group.view(flat, *parameter)));
      }
    }
  }
  return largest;
}

}  // namespace

std::string EqualityCase::to_string() const {
  const std::string shards =
      grid[Axis::kShard] == 1
          ? ""
          : fmt::format(", {}{} of {} shards{}", whole_weights ? "state" : "weights",
                        whole_gradients ? "" : " and gradients", grid[Axis::kShard],
                        whole_weights ? "" : fmt::format(", {} ahead", prefetch));
  return fmt::format("{} {}{}{}{}{}{}{}", grid.to_string(), schedule,
                     chunks ? fmt::format(" of {} chunks", *chunks) : "",
                     sequence_parallel ? ", sequence parallel" : "",
                     other        ? ""
                     : model.tied ? ", tied"
                                  : ", untied",
                     other                              ? ""
                     : !choices.empty()                 ? ", " + choices
                     : model.norm == nn::NormKind::kRms ? ", llama"
                                                        : ", gpt2",
                     compute == DType::kF32
                         ? ""
                         : fmt::format(", {}{}", name_of(compute), split_masters ? " split" : ""),
                     runs.recompute == parallel::Recompute::kFull ? ", recomputed"
                     : runs.recompute == parallel::Recompute::kSelective
                         ? ", selectively recomputed"
                         : "") +
         (runs.recomputed_blocks ? fmt::format(" in {} of a stage", *runs.recomputed_blocks) : "") +
         (batch_runs.runs == 0 ? ""
                               : fmt::format(", {} runs{}", batch_runs.runs,
                                             batch_runs.reduces_each ? " in rounds" : "")) +
         shards +
         (frozen.empty() ? "" : fmt::format(", frozen {}", fmt::join(frozen.patterns(), ",")));
}

optim::OptimizerConfig optimizer_of_rule(const std::string& rule) {
  optim::OptimizerConfig config;
  if (rule == "plain sgd") {
    config.rule = {.name = "sgd", .weight_decay = 0.0f};
    return config;
  }
  const bool by_heads = rule == "muon by heads";
  config.rule = optim::rule_kind(by_heads ? "muon" : rule).defaults;
  config.heads_apart = by_heads;
  if (by_heads) {
    config.groups = {{NamePatterns({"token*.weight", "head.weight"}), config.rule, 0.5f, 0.0f},
                     {NamePatterns({"*.down.weight"}), optim::rule_kind("lion").defaults, 0.1f}};
  }
  return config;
}

LocalParts weights_of(ops::Context& ctx, const parallel::Stage& stage) {
  return parts_of(ctx, stage, Which::kWeight, 1.0);
}

LocalParts gradients_of(ops::Context& ctx, const parallel::Stage& stage) {
  return parts_of(ctx, stage, Which::kGradient, 1.0);
}

// In bf16 another grid rounds other partial sums to 8 bits of significand, so it deviates from one
// rank by about as much as one rank in bf16 deviates from fp32: 1.5e-2 to 1.9e-2 of the largest
// gradient, which equality_test prints beside the grids' 1.7e-2. 1/32, eight units in the last
// place, is less than twice that. Weights after ten steps have the same measure, for biases begin
// at zero. Losses are means over many positions, whose roundings cancel: 1e-4 was the most; 1/1024
// is a quarter of a unit in the last place. fp16 has three bits more, so it is allowed an eighth.
// With products in e4m3 such a deviation moves codes by a unit, a sixteenth of a value: one rank
// deviates from bf16 by 1.2e-1 of the largest gradient, and grids by 8e-2 from one rank.
Tolerances tolerances_in(DType compute, bool block_scaled) {
  if (block_scaled) return {1.0 / 8, 1.0 / 8, 1.0 / 1024, 4e-6};
  if (compute == DType::kF32) return {1e-5, 1e-5, 1e-5, 1e-7};
  if (compute == DType::kF16) return {1.0 / 256, 1.0 / 256, 1.0 / 8192, 1e-6};
  return {1.0 / 32, 1.0 / 32, 1.0 / 1024, 1e-6};
}

Observed observe(ops::Context& ctx, const ProcessGrid& grid, const EqualityCase& test) {
  Observed observed;
  const nn::ModelPlan plan = plan_of(test);
  {
    parallel::TrainerStep sgd(ctx, grid, plan, step_options(test, "plain sgd"));
    ctx.step_state->random_key = philox_key(kSeed, "step 0");
    const auto first = sgd.accumulate(share(ctx, grid, test, 0, true));
    observed.gradients =
        parts_of(ctx, sgd.stage(), Which::kGradient,
                 1.0 / (static_cast<double>(first.targets) * double{ctx.step_state->loss_scale}));
    for (int step = 0; step < test.steps; ++step) {
      sgd.train(share(ctx, grid, test, step, true), step + 1, kSgdRate,
                philox_key(kSeed, fmt::format("step {}", step)));
    }
    observed.weights = parts_of(ctx, sgd.stage(), Which::kWeight, 1.0);
    for (const nn::State* state : sgd.stage().states().states()) {
      const auto values = state->value().span<float>();
      observed.states[state->name()] = {values.begin(), values.end()};
    }
  }
  parallel::StepOptions options = step_options(test, test.rule);
  options.clip = 1.0f;
  parallel::TrainerStep training(ctx, grid, plan, options);
  const auto rate = static_cast<float>(optim::rule_kind(options.optimizer.rule.name).learning_rate);
  for (int step = 0; step < test.steps; ++step) {
    const auto result = training.train(share(ctx, grid, test, step, true), step + 1, rate,
                                       philox_key(kSeed, fmt::format("step {}", step)));
    observed.losses.push_back(result.loss);
  }
  const auto held_out = share(ctx, grid, test, test.steps, false);
  observed.evaluation =
      parallel::evaluate(training.executor(), static_cast<int>(held_out.size()), [&](int i) {
        return held_out[static_cast<std::size_t>(i)];
      }).loss_sum;
  observed.updated = weights_of(ctx, training.stage());
  observed.padding = largest_padding(ctx, training.stage(), training.optimizer());
  return observed;
}

GradientObserver::GradientObserver(ops::Context& ctx, const ProcessGrid& grid,
                                   const EqualityCase& test)
    : ctx_(ctx),
      grid_(grid),
      test_(test),
      scale_(1.0 / targets_of(ctx, test)),
      stage_(ctx, grid, plan_of(test), step_options(test, "plain sgd").stage),
      reducer_(ctx, stage_, {.to_shard = stage_.sharded()}, test.work(), test.runs.blocks),
      executor_(ctx, stage_, test.runs) {}

LocalParts GradientObserver::gradients(const Tampering& here) {
  const auto mine = share(ctx_, grid_, test_, 0, true);
  const int count = static_cast<int>(mine.size());
  contributions_.clear();
  const auto complete = [&](const nn::Parameter& parameter) {
    double largest = 0.0;
    for (float& value : parameter.gradient().span<float>()) {
      largest = std::max(largest, std::abs(double{value}));
      if (parameter.name() == here.parameter) value *= here.factor;
    }
    if (parameter.name() == here.other_key_after) ++ctx_.step_state->random_key;
    contributions_[parameter.name()] = largest * scale_;
  };
  Interceptor interceptor(
      reducer_, count,
      {.complete = complete,
       .begins = [&](const nn::FlatGroup& group) { tamper_with_weights(group, here); },
       .reducing = [&](const nn::FlatGroup& group) { tamper_with_reduction(group, here); }});
  ctx_.step_state->random_key = philox_key(kSeed, "step 0");
  reducer_.begin_step(count);
  executor_.train(parallel::make_pipeline_schedule(test_.schedule, stage_.layout(), count,
                                                   stage_.first_trained_part()),
                  mine, interceptor);
  reducer_.finish_step();
  return parts_of(ctx_, stage_, Which::kGradient, scale_);
}

void GradientObserver::tamper_with_weights(const nn::FlatGroup& group, const Tampering& here) {
  const auto& groups = stage_.groups();
  const auto found = std::ranges::find(groups, &group);
  if (found == groups.end()) return;
  if (group.name() == here.releases_early) (*found)->release();
  if (group.name() != here.gathers_another) return;
  const nn::FlatGroup& other = **std::ranges::find_if(groups, [&](const nn::FlatGroup* one) {
    return one != &group && one->extent() == group.extent();
  });
  stage_.grid()
      .comm(Axis::kShard)
      .all_gather(ctx_.stream, other.weight_shard(), group.weights())
      .wait_host();
}

void GradientObserver::tamper_with_reduction(const nn::FlatGroup& group, const Tampering& here) {
  if (group.name() != here.reduces_twice) return;
  Communicator& data = stage_.grid().comm(kDataAxes);
  data.all_reduce(ctx_.stream, group.gradients(), ReduceOp::kSum).wait_host();
}

std::vector<Deviation> compare(const LocalParts& reference, const LocalParts& here,
                               Communicator& world) {
  std::vector<double> largest, covered;  // by parameter, in the reference's order
  for (const auto& [name, whole] : reference) {
    double deviation = 0.0;
    const auto found = here.find(name);
    if (found != here.end()) {
      for_each_element(found->second, [&](float value, std::int64_t global) {
        const double difference = std::abs(value - whole.values[static_cast<std::size_t>(global)]);
        // NaN counts as the largest deviation; max() alone would drop it.
        deviation = std::isnan(difference) ? INFINITY : std::max(deviation, difference);
      });
    }
    largest.push_back(deviation);
    covered.push_back(
        found == here.end() ? 0.0 : static_cast<double>(found->second.placement.extent.elements()));
  }
  world.all_reduce_host(std::span<double>(largest), ReduceOp::kMax);
  world.all_reduce_host(std::span<double>(covered), ReduceOp::kSum);

  std::vector<Deviation> deviations;
  std::size_t i = 0;
  for (const auto& [name, whole] : reference) {
    double scale = 0.0;
    for (const float value : whole.values) scale = std::max(scale, std::abs(double{value}));
    const auto elements = static_cast<double>(whole.placement.global.elements());
    deviations.push_back({name, scale > 0.0 ? largest[i] / scale : 0.0, largest[i],
                          covered[i] > 0.0 && std::fmod(covered[i], elements) == 0.0});
    ++i;
  }
  return deviations;
}

bool zero_in_exact_arithmetic(const std::string& name, const models::GptConfig& model) {
  if (name.find("attention.key.bias") == std::string::npos) return false;
  const std::int64_t layer = std::stoll(name.substr(name.find('.') + 1));  // blocks.LAYER.
  return !model.turns(layer) && model.query_key_norm == nn::QueryKeyNorm::kNone;
}

}  // namespace trireme::testing
