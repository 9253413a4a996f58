#include "trireme/parallel/gradient_reducer.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

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
      runs_(work.runs()),
      reduces_each_(work.reduces_each()),
      defers_(ctx.device.kind != DeviceKind::kCpu || stage.collective()) {
  groups_.reserve(stage.groups().size() + stage.uses_apart().size());
  for (nn::FlatGroup* flat : stage.groups()) plan({flat}, options);
  for (const Stage::UseApart& use : stage.uses_apart()) plan({use.gradients, use.of}, options);
  const auto each = static_cast<std::size_t>(blocks_at_once);
  for (int chunk = 0; chunk < stage.layout().chunks; ++chunk) {
    const nn::BlockSpan blocks = stage.blocks(chunk);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % each == 0) at_once_.emplace_back();
      std::vector<nn::FlatGroup*>& groups = at_once_.back();
      const std::size_t before = groups.size();
      const nn::ParameterSet& parameters = blocks[i]->parameters();
      for (const auto& group : parameters.groups()) groups.push_back(group.get());
      for (const auto& group : parameters.uses_apart()) groups.push_back(group.get());
      block_groups_ = std::max(block_groups_, groups.size() - before);
    }
  }
  const bool equal = std::ranges::all_of(
      groups_, [&](const Group& group) { return group.flat->keeps_copies_equal(ctx); });
  // The communicators of a replica's ranks may have different tables, and all holders of a
  // parameter must broadcast or none.
  hands_on_ = !stage.grid().comm(kModelAxes).agree(equal);
}

void GradientReducer::plan(Group group, const nn::ReductionOptions& options) {
  nn::FlatGroup& flat = *group.flat;
  flat.plan_reduction(ctx_, options);
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
  if (flat.tied() && flat.uses() > 1) shared_.push_back(&planned);
}

void GradientReducer::connect() {
  const bool stay = std::ranges::all_of(
      groups_, [](const Group& group) { return group.flat->keeps_whole_gradients(); });
  const int runs = reduces_each_ ? std::min(runs_, stay ? 1 : 2) : runs_;
  begin_runs(runs, 1);
  for (int run = 0; run < runs; ++run) rehearse_run();
  finish_step();
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

void GradientReducer::begin_step(int micro_batches) {
  const int runs = ctx_.dry && reduces_each_ ? std::min(runs_, micro_batches) : runs_;
  TRIREME_CHECK(micro_batches % runs == 0,
                fmt::format("{} micro-batches in {} runs", micro_batches, runs_));
  begin_runs(runs, micro_batches / runs);
}

void GradientReducer::begin_runs(int runs, int run_length) {
  runs_of_step_ = runs;
  run_length_ = run_length;
  under_way_.clear();  // a step that was given up may have left work
  reducing_.clear();
  for (Group& group : groups_) {
    if (!group.flat->lacks_gradients()) return_memory(*group.flat);
    group.runs = group.missing = 0;
    group.phase.reset();
    group.works.clear();
    if (group.sum) group.sum->begin();
  }
}

void GradientReducer::prepare(const nn::FlatGroup& group) {
  Group& prepared = *by_flat_.at(&group);
  // Or contributions of two runs would mix. (A group that several blocks use may wait for others.)
  TRIREME_CHECK(
      std::ranges::find(shared_, &prepared) != shared_.end() ||
          prepared.missing % group.uses() == 0,
      fmt::format("{} still waits for contributions of the micro-batch before", group.name()));
  begin_run(prepared);
  for (Group* shared : shared_) begin_run(*shared);
}

void GradientReducer::begin_run(Group& group) {
  if (group.missing > 0 || group.runs == runs_of_step_) return;
  settle(group);
  take_memory(*group.flat);
  ops::fill(ctx_, group.flat->gradients(), 0.0f);
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
  if (--group.missing == 0) {
    const bool adds_first = group.sum && !adds_after_reduction(group);
    if (!adds_first || group.sum->add(ctx_, group.flat->gradients())) {
      start(group, Phase::kSum);
      if (!group.flat->keeps_whole_gradients()) hold_few(group);
    }
  }
  if (!defers_) poll();
}

// All replicas complete their groups at the same points between collective calls, so they wait at
// the same points too.
void GradientReducer::hold_few(Group& started) {
  reducing_.push_back(&started);
  std::deque<Group*>& first = under_way_[Phase::kSum];
  while (first.size() > block_groups_) move_on(Phase::kSum);
  const std::size_t phases = started.flat->last_phase() == Phase::kSum ? 1 : 2;
  while (reducing_.size() > phases * block_groups_) settle(*reducing_.front());
}

void GradientReducer::start(Group& group, Phase phase) {
  group.works = group.flat->start_reduction(ctx_, phase);
  group.phase = phase;
  under_way_[phase].push_back(&group);
}

void GradientReducer::move_on(Phase phase) {
  Group& group = *under_way_[phase].front();
  under_way_[phase].pop_front();
  wait(ctx_, group.works);
  if (phase != group.flat->last_phase()) return start(group, Phase::kCopies);
  group.phase.reset();
  group.flat->finish_reduction(ctx_);
  if (adds_after_reduction(group)) group.sum->add(ctx_, group.flat->sums_of_run());
  if (group.flat->keeps_whole_gradients()) return;
  TRIREME_CHECK(reducing_.front() == &group, "reductions end in the order in which they start");
  reducing_.pop_front();
  return_memory(*group.flat);
}

void GradientReducer::poll() {
  const std::deque<Group*>& first = under_way_[Phase::kSum];
  const auto moves = [](const Group& group) {
    return group.flat->last_phase() != Phase::kSum &&
           std::ranges::all_of(group.works, [](const Work& one) { return one.done(); });
  };
  while (!first.empty() && moves(*first.front())) move_on(Phase::kSum);
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
  // First all second phases start.
  for (std::deque<Group*>& first = under_way_[Phase::kSum]; !first.empty();) move_on(Phase::kSum);
  for (std::deque<Group*>& last = under_way_[Phase::kCopies]; !last.empty();) {
    move_on(Phase::kCopies);
  }
  for (const Group& group : groups_) {
    if (group.of == nullptr) continue;
    const Tensor sum = group.of->reduced();
    ops::add(ctx_, sum, group.flat->reduced(), sum);
  }
  std::vector<Work> works;
  for (const Group& group : groups_) {
    std::ranges::move(group.flat->start_partial(ctx_), std::back_inserter(works));
  }
  wait(ctx_, works);
  if (!hands_on_) return;
  for (const Group& group : groups_) {
    std::ranges::move(group.flat->hand_on_gradients(ctx_), std::back_inserter(works));
  }
  wait(ctx_, works);
}

void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& limbs,
                              const Tensor& sum) {
  ops::fill(ctx, limbs, 0.0f);
  Communicator* sharded = nullptr;  // all groups are sharded over the same ranks
  for (const nn::FlatGroup* group : stage.groups()) {
    group->add_sum_of_squares(ctx, limbs);
    sharded = group->ranks().sharded;
  }
  Communicator& model = stage.grid().comm(kModelAxes);
  model.all_reduce(ctx.stream, limbs, ReduceOp::kSum).wait_on(ctx.stream);
  if (sharded != nullptr && sharded->size() > 1) {
    sharded->all_reduce(ctx.stream, limbs, ReduceOp::kSum).wait_on(ctx.stream);
  }
  ops::round_exact_sum(ctx, limbs, sum);
}

}  // namespace trireme::parallel
