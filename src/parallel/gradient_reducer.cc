#include "trireme/parallel/gradient_reducer.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"

#include "parallel/gradient_pieces.h"

namespace trireme::parallel {

namespace {

void wait(ops::Context& ctx, std::vector<Work>& works) {
  for (const Work& work : works) work.wait_on(ctx.stream);
  works.clear();
}

}  // namespace

GradientReducer::GradientReducer(ops::Context& ctx, const Stage& stage,
                                 const nn::ReductionOptions& options, const WorkSplit& work,
                                 int blocks_at_once)
    : ctx_(ctx),
      stage_(stage),
      runs_(work.runs()),
      reduces_each_(work.reduces_each()),
      defers_(ctx.device.kind != DeviceKind::kCpu || stage.collective()),
      compresses_(options.bits < 32 && stage.grid().extent(kDataAxes) > 1) {
  groups_.reserve(stage.groups().size() + stage.uses_apart().size());
  const ProcessGrid& grid = stage.grid();
  const std::vector<ResidentGroup> residences = stage.residences();
  const auto calls_with = [&](bool compressed) {
    return calls_of(residences, grid.shape(), work,
                    {.to_shard = options.to_shard,
                     .fixed_order = false,  // whether they are made is known below
                     .few_bits = compressed});
  };
  const std::vector<Call> calls = calls_with(compresses_);
  const std::vector<Call> plain = compresses_ ? calls_with(false) : std::vector<Call>();
  if (compresses_ && !defers_ && !stage.sharded()) {
    results_ = grid.make({"results", kDataAxes, Purpose::kGradients});
  }
  std::size_t next = 0;
  const auto plan_next = [&](Group group) {
    const auto of_group = [&](const std::vector<Call>& all) {
      const auto [begin, end] = std::ranges::equal_range(all, next, {}, &Call::group);
      return std::span(begin, end);
    };
    plan(std::move(group), options, of_group(calls));
    if (compresses_) compress(groups_.back(), options, of_group(plain));
  };
  for (nn::FlatGroup* flat : stage.groups()) {
    if (flat->trains()) plan_next({flat});
    ++next;
  }
  for (const Stage::UseApart& use : stage.uses_apart()) {
    plan_next({use.gradients, use.of});
    ++next;
  }
  if (compresses_) share_memory_of_sums();
  const auto each = static_cast<std::size_t>(blocks_at_once);
  for (int chunk = 0; chunk < stage.layout().chunks; ++chunk) {
    const nn::BlockSpan blocks = stage.blocks(chunk);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % each == 0) at_once_.emplace_back();
      std::vector<nn::FlatGroup*>& groups = at_once_.back();
      const std::size_t before = groups.size();
      const nn::ParameterSet& parameters = blocks[i]->parameters();
      for (const auto& group : parameters.groups()) {
        if (group->trains()) groups.push_back(group.get());
      }
      for (const auto& group : parameters.uses_apart()) groups.push_back(group.get());
      block_groups_ = std::max(block_groups_, groups.size() - before);
    }
  }
  const bool equal =
      std::ranges::all_of(groups_, [&](const Group& group) { return keeps_copies_equal(group); });
  // Communicators may have different tables, and all holders of a parameter must broadcast or none.
  hands_on_ = !grid.world().agree(equal);
}

std::vector<GradientReducer::Step> GradientReducer::steps_of(std::span<const Call> calls) const {
  std::vector<Step> steps;
  for (const Call& call : calls) {
    if (call.why == Purpose::kGradients) steps.push_back({call, &stage_.comm(call.over)});
  }
  return steps;
}

void GradientReducer::plan(Group group, const nn::ReductionOptions& options,
                           std::span<const Call> calls) {
  nn::FlatGroup& flat = *group.flat;
  std::vector<Communicator*> carriers;
  for (Step& step : steps_of(calls)) {
    const bool at_end = step.call.when == Moment::kStepEnd;
    if (!at_end) carriers.push_back(step.over);
    auto& steps = !at_end                                    ? group.of_run
                  : step.call.what == Collective::kBroadcast ? group.handed_on
                                                             : group.at_end;
    steps.push_back(std::move(step));
  }
  TRIREME_CHECK(group.of_run.size() <= under_way_.size(), "a reduction has two phases at most");
  phased_ = phased_ || group.of_run.size() > 1;
  nn::ReductionOptions of_group = options;
  if (carriers.empty()) of_group.travel = DType::kF32;  // they travel nowhere
  flat.plan_reduction(ctx_, of_group, carriers);
  if (!flat.keeps_whole_gradients()) {
    TRIREME_CHECK(runs_ == 1 || reduces_each_,
                  "whole gradients stay where runs add up before they "
                  "are reduced");
    group.sum.emplace(ctx_, flat.reduced().elements(), runs_, flat.reduced());
  } else if (runs_ > 1) {
    const Tensor terms = reduces_each_ ? flat.reduced() : flat.gradients();
    group.sum.emplace(ctx_, terms.elements(), runs_);
  }
  Group& planned = groups_.emplace_back(std::move(group));
  by_flat_[&flat] = &planned;
  if (flat.shared() && flat.uses() > 1) shared_.push_back(&planned);
}

void GradientReducer::compress(Group& group, const nn::ReductionOptions& options,
                               std::span<const Call> plain) {
  const nn::FlatGroup& flat = *group.flat;
  TRIREME_CHECK(flat.keeps_whole_gradients() && !flat.rounds(),
                "gradients that travel in few bits are whole ones, in fp32");
  for (Step& step : steps_of(plain)) {
    if (step.call.when != Moment::kStepEnd) group.of_kept.push_back(std::move(step));
  }
  Communicator& replicas = *group.of_run.front().over;
  Communicator* gatherers = group.of_run.size() > 1 ? group.of_run.back().over : nullptr;
  if (gatherers == &replicas && results_) gatherers = results_.get();
  group.compressed = std::make_unique<CompressedSum>(
      ctx_, replicas, gatherers, flat.extent(), options.bits,
      gradient_pieces(flat, replicas.size() / flat.sharding().count()));
}

// On a CPU a sum is turned when its terms are here. So that how much memory that takes does not
// depend on timing, all add up in one place.
void GradientReducer::share_memory_of_sums() {
  std::int64_t most = 0;
  for (const Group& group : groups_) {
    most = std::max(most, group.compressed->shape().adding_elements());
  }
  adding_ = ctx_.allocate({most}, DType::kF32, MemoryUse::kGradients);
  for (Group& group : groups_) group.compressed->add_up_in(adding_);
}

bool GradientReducer::keeps_copies_equal(const Group& group) const {
  const auto fixed = [&](const Step& step) {
    return step.over->fixes_order_of_sums(ctx_.device.kind);
  };
  const bool of_run = group.compressed || std::ranges::all_of(group.of_run, fixed);
  return !group.flat->rounds() && of_run && std::ranges::all_of(group.at_end, fixed);
}

void GradientReducer::connect() {
  const bool stay = std::ranges::all_of(
      groups_, [](const Group& group) { return group.flat->keeps_whole_gradients(); });
  const int runs = reduces_each_ ? std::min(runs_, stay ? 1 : 2) : runs_;
  keeps_ = false;
  begin_runs(runs, 1);
  for (int run = 0; run < runs; ++run) rehearse_run();
  finish_step();
  if (compresses()) add_up_kept();
}

void GradientReducer::rehearse_run() {
  for (const std::vector<nn::FlatGroup*>& groups : std::views::reverse(at_once_)) {
    for (const nn::FlatGroup* group : groups) prepare(*group);
    for (const nn::FlatGroup* group : std::views::reverse(groups)) {
      for (const nn::Parameter* parameter : group->parameters()) {
        for (int use = 0; use < parameter->uses(); ++use) contributed(*parameter);
      }
    }
  }
}

void GradientReducer::begin_step(int micro_batches, bool keeps) {
  keeps_ = keeps;
  const int runs = ctx_.dry && reduces_each_ ? std::min(runs_, micro_batches) : runs_;
  TRIREME_CHECK(micro_batches % runs == 0,
                fmt::format("{} micro-batches in {} runs", micro_batches, runs_));
  begin_runs(runs, micro_batches / runs);
}

void GradientReducer::begin_runs(int runs, int run_length) {
  runs_of_step_ = runs;
  run_length_ = run_length;
  under_way_ = {};  // a step that was given up may have left work
  reducing_.clear();
  for (Group& group : groups_) {
    if (!group.flat->lacks_gradients()) return_memory(*group.flat);
    group.runs = group.missing = 0;
    group.phase.reset();
    group.works.clear();
    if (group.compressed) group.compressed->give_up();
    if (group.sum) group.sum->begin();
  }
}

void GradientReducer::prepare(const nn::FlatGroup& group) {
  if (const auto found = by_flat_.find(&group); found != by_flat_.end()) {  // it trains
    Group& prepared = *found->second;
    // Otherwise contributions of two runs would mix. (A group that several blocks use may wait for
    // others.)
    TRIREME_CHECK(
        std::ranges::find(shared_, &prepared) != shared_.end() ||
            prepared.missing % group.uses() == 0,
        fmt::format("{} still waits for contributions of the micro-batch before", group.name()));
    begin_run(prepared);
  }
  for (Group* shared : shared_) begin_run(*shared);
}

void GradientReducer::begin_run(Group& group) {
  if (group.missing > 0 || group.runs == runs_of_step_) return;
  settle(group);
  take_memory(*group.flat);
  group.flat->begin_gradients(ctx_);
  group.missing = group.flat->uses() * run_length_;
  ++group.runs;
}

void GradientReducer::take_memory(nn::FlatGroup& group) {
  if (group.keeps_whole_gradients()) return;
  std::vector<WholeGradients>& of_extent = free_[group.extent()];
  if (of_extent.empty()) of_extent.push_back(group.allocate_gradients(ctx_));
  group.hold_gradients(std::move(of_extent.back()));
  of_extent.pop_back();
}

void GradientReducer::return_memory(nn::FlatGroup& group) {
  if (group.keeps_whole_gradients()) return;
  free_[group.extent()].push_back(group.release_gradients());
}

void GradientReducer::contributed(const nn::Parameter& parameter) {
  Group& group = *by_flat_.at(&parameter.group());
  TRIREME_CHECK(group.missing > 0,
                fmt::format("a contribution to {} that nothing waits for", group.flat->name()));
  parameter.write_gradient(ctx_);
  if (--group.missing == 0) {
    const bool adds_first = group.sum && !adds_after_reduction(group);
    if (!adds_first || group.sum->add(ctx_, group.flat->gradients())) {
      start(group, 0);
      if (!group.flat->keeps_whole_gradients()) hold_few(group);
    }
  }
  if (!defers_) poll();
}

// All replicas complete their groups at the same points between collective calls, so they wait at
// the same points too.
void GradientReducer::hold_few(Group& started) {
  reducing_.push_back(&started);
  if (ctx_.log) ctx_.log->settle(static_cast<std::int32_t>(block_groups_) - 1);
  while (under_way_[0].size() > block_groups_) move_on(0);
  const std::size_t phases = started.last_phase() + 1;
  while (reducing_.size() > phases * block_groups_) settle(*reducing_.front());
}

void GradientReducer::start(Group& group, std::size_t phase) {
  if (phase == 0) group.flat->begin_reduction(ctx_);
  if (group.compressed && phase == 0) {
    group.compressed->start(ctx_, group.flat->gradients(), 1.0f, keeps_);
  } else if (group.compressed) {
    group.compressed->turn(ctx_);
  } else if (phase < group.of_run.size()) {
    const Step& step = group.of_run[phase];
    group.works = {start_call(ctx_, *group.flat, step.call, *step.over)};
  }
  group.phase = phase;
  under_way_[phase].push_back(&group);
}

void GradientReducer::move_on(std::size_t phase) {
  Group& group = *under_way_[phase].front();
  under_way_[phase].pop_front();
  wait(ctx_, group.works);
  if (phase != group.last_phase()) return start(group, phase + 1);
  group.phase.reset();
  if (group.compressed) group.compressed->finish(ctx_);
  group.flat->finish_reduction(ctx_);
  if (adds_after_reduction(group)) group.sum->add(ctx_, group.flat->sums_of_run());
  if (group.flat->keeps_whole_gradients()) return;
  TRIREME_CHECK(reducing_.front() == &group, "reductions end in the order in which they start");
  reducing_.pop_front();
  return_memory(*group.flat);
}

void GradientReducer::poll() {
  const std::deque<Group*>& first = under_way_[0];
  const auto moves = [](const Group& group) {
    if (group.compressed) return group.last_phase() != 0 && group.compressed->arrived();
    return group.last_phase() != 0 &&
           std::ranges::all_of(group.works, [](const Work& one) { return one.done(); });
  };
  if (ctx_.log && phased_) ctx_.log->look();
  while (!first.empty() && moves(*first.front())) {
    if (ctx_.log) ctx_.log->begin_later();
    move_on(0);
    if (ctx_.log) ctx_.log->end_later();
  }
}

void GradientReducer::settle(const Group& group) {
  while (group.phase) move_on(*group.phase);
}

void GradientReducer::finish_step() {
  for (const Group& group : groups_) {
    TRIREME_CHECK(group.missing == 0 && group.runs == runs_of_step_,
                  fmt::format("{} still misses {} gradient contributions in run {} of {}",
                              group.flat->name(), group.missing, group.runs, runs_of_step_));
  }
  if (ctx_.log) ctx_.log->settle(0);
  // First all second phases start.
  for (std::size_t phase = 0; phase < under_way_.size(); ++phase) {
    while (!under_way_[phase].empty()) move_on(phase);
  }
  add_uses_apart();
  make_all(&Group::at_end);
  if (hands_on_) make_all(&Group::handed_on);
}

void GradientReducer::add_uses_apart() {
  for (const Group& group : groups_) {
    if (group.of == nullptr) continue;
    const Tensor sum = group.of->reduced();
    ops::add(ctx_, sum, group.flat->reduced(), sum);
  }
}

void GradientReducer::carry_over(const ops::LossScaling& rule) {
  for (const Group& group : groups_) {
    if (!group.compressed) continue;
    ops::carry_over(ctx_, rule, group.compressed->kept_of_term());
    ops::carry_over(ctx_, rule, group.compressed->kept_of_result());
  }
}

void GradientReducer::add_up_kept() {
  for (const Group& group : groups_) {
    const Tensor& sums = group.flat->gradients();
    ops::cast(ctx_, group.compressed->kept_of_term(), sums);
    std::int64_t at = 0;
    for (const FlatRange& owned : group.compressed->owned()) {
      const Tensor here = sums.flat_range(owned.begin, owned.end);
      ops::add(ctx_, here, group.compressed->kept_of_result().flat_range(at, at + owned.size()),
               here);
      at += owned.size();
    }
    for (const Step& step : group.of_kept) {
      start_call(ctx_, *group.flat, step.call, *step.over).wait_on(ctx_.stream);
    }
  }
  add_uses_apart();
  make_all(&Group::at_end);
}

void GradientReducer::take_kept() {
  const ProcessGrid& grid = stage_.grid();
  for (const Group& group : groups_) {
    const nn::FlatGroup& flat = *group.flat;
    const Tensor& kept = group.compressed->kept_of_term();
    ops::fill(ctx_, kept, 0.0f);
    ops::fill(ctx_, group.compressed->kept_of_result(), 0.0f);
    if (group.of != nullptr) continue;  // what it has kept was added to that
    if (flat.sharding().count() > 1) {
      grid.comm(Axis::kShard)
          .all_gather(ctx_.stream, flat.gradient_shard(), flat.gradients())
          .wait_on(ctx_.stream);
    }
    for (const nn::Parameter* parameter : flat.parameters()) {
      float share = 1.0f;
      for (const Span& span : parameter->residence().summed) {
        share /= static_cast<float>(grid.shape().extent(span));
      }
      const Tensor of_parameter = flat.view(kept, *parameter);
      ops::cast(ctx_, flat.view(flat.gradients(), *parameter), of_parameter);
      ops::scale(ctx_, of_parameter, share);
    }
  }
}

void GradientReducer::make_all(std::vector<Step> Group::*steps) {
  std::vector<Work> works;
  for (const Group& group : groups_) {
    for (const Step& step : group.*steps) {
      works.push_back(start_call(ctx_, *group.flat, step.call, *step.over));
    }
  }
  wait(ctx_, works);
}

Work start_call(ops::Context& ctx, const nn::FlatGroup& group, const Call& call,
                Communicator& over) {
  const bool at_end = call.when == Moment::kStepEnd;
  const Tensor x = at_end ? group.reduced(call.of) : group.travelling(call.of);
  const ReduceOp op = !at_end && group.rounds() ? ReduceOp::kRoundedSum : ReduceOp::kSum;
  switch (call.what) {
    case Collective::kAllReduce:
      return over.all_reduce(ctx.stream, x, op);
    case Collective::kReduceScatter:
      return over.reduce_scatter(ctx.stream, x, group.travelling(group.sharding().memory()), op);
    case Collective::kBroadcast:
      return over.broadcast(ctx.stream, x, 0);
    default:
      throw InternalError(fmt::format("{} of gradients", name_of(call.what)));
  }
}

void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& limbs,
                              const Tensor& sum) {
  ops::fill(ctx, limbs, 0.0f);
  const ProcessGrid& grid = stage.grid();
  std::vector<ops::SquaresPart> parts;
  for (const nn::FlatGroup* group : stage.trained_groups()) {
    group->add_counted(grid.shape(), grid.index(kAllAxes), kModelAxes | Axis::kShard, parts);
  }
  ops::add_sum_of_squares(ctx, parts, limbs);
  grid.comm(kModelAxes).all_reduce(ctx.stream, limbs, ReduceOp::kSum).wait_on(ctx.stream);
  if (stage.sharded()) {
    grid.comm(Axis::kShard).all_reduce(ctx.stream, limbs, ReduceOp::kSum).wait_on(ctx.stream);
  }
  ops::round_exact_sum(ctx, limbs, sum);
}

}  // namespace trireme::parallel
