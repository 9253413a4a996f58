#include "trireme/parallel/stage.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/parallel/partition.h"

namespace trireme::parallel {
namespace {

// The stages that use each of the parameters that blocks share, in order.
std::map<std::string, std::set<int>> sharing_stages(const nn::ModelPlan& plan,
                                                    const PipelineLayout& layout,
                                                    const std::vector<int>& bounds) {
  std::map<std::string, std::set<int>> stages;
  for (int part = 0; part < layout.parts(); ++part) {
    const auto p = static_cast<std::size_t>(part);
    for (int i = bounds[p]; i < bounds[p + 1]; ++i) {
      for (const std::string& name : plan.blocks[static_cast<std::size_t>(i)].shares) {
        stages[name].insert(layout.stage_of(part));
      }
    }
  }
  return stages;
}

void add_once(ShardedWeights::Use& groups, nn::FlatGroup* group) {
  if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
}

}  // namespace

Stage::Stage(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
             const StageOptions& options)
    : grid_(grid),
      options_(options),
      stream_(ctx.stream),
      layout_{grid.extent(Axis::kPipeline), options.chunks, options.order},
      collective_(std::ranges::any_of(plan.blocks, &nn::BlockPlan::collective)),
      together_(std::ranges::any_of(plan.blocks, &nn::BlockPlan::together)) {
  bounds_ = parts_of_model(plan, layout_, options.cut, options.trained);
  for (const nn::BlockPlan& block : plan.blocks) boundaries_.push_back(block.boundary);

  nn::BuildContext build{
      .grid = grid,
      .sequence_parallel = options.sequence_parallel,
      .block_scaled = options.block_scaled,
      .separates_uses = options.separates_uses,
  };
  tie_stages(plan, build);
  build_blocks(plan, build);
  communicators_ = std::move(build.made);
  std::vector<nn::State*> states;
  for (const auto& blocks : chunks_) {
    for (const auto& block : blocks) {
      for (const auto& state : block->states().states()) states.push_back(state.get());
    }
  }
  states_ = nn::StageStates(ctx, std::move(states));
  weights_ =
      ShardedWeights(groups_, grid.comm(Axis::kShard), options.whole_weights, options.prefetch);
  materialize_groups(ctx);
  if (options.seed) draw_initial_values(ctx, *options.seed);
}

void Stage::tie_stages(const nn::ModelPlan& plan, nn::BuildContext& build) const {
  const int here = grid_.index(Axis::kPipeline);
  for (const auto& [name, stages] : sharing_stages(plan, layout_, bounds_)) {
    if (stages.size() == 1 || !stages.contains(here)) continue;
    const GroupLabel label = {
        "tied", {Axis::kPipeline, 0, {stages.begin(), stages.end()}}, Purpose::kGradients};
    build.comm(label);
    build.shared[name].holders = {.ranks = label.span, .partial = true};
  }
}

void Stage::build_blocks(const nn::ModelPlan& plan, nn::BuildContext& build) {
  const int here = grid_.index(Axis::kPipeline);
  for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
    const auto part = static_cast<std::size_t>(layout_.part(here, chunk));
    auto& blocks = chunks_.emplace_back();
    auto& used = used_.emplace_back();
    for (int i = bounds_[part]; i < bounds_[part + 1]; ++i) {
      const nn::BlockPlan& block = plan.blocks[static_cast<std::size_t>(i)];
      blocks.push_back(block.build(build));
      TRIREME_CHECK(blocks.back()->is_loss() == block.loss, "a plan that knows its losses");
      used.push_back(form_groups(*blocks.back(), block.name));
      for (const std::string& name : block.shares) {
        if (const nn::Parameter* first = build.shared[name].first) {
          add_once(used.back(), &first->group());
        }
      }
    }
  }
}

ShardedWeights::Use Stage::form_groups(nn::Block& block, const std::string& name) {
  block.parameters().freeze(options_.trained.frozen);
  block.parameters().form_groups(name,
                                 nn::StateLayout::along(grid_, Axis::kReplicate, Axis::kShard));
  ShardedWeights::Use formed;
  for (const auto& group : block.parameters().groups()) formed.push_back(group.get());
  groups_.insert(groups_.end(), formed.begin(), formed.end());
  for (const auto& group : block.parameters().uses_apart()) {
    const nn::Parameter& use = *group->parameters().front();
    uses_apart_.push_back({group.get(), &use.first_use()->group()});
  }
  return formed;
}

void Stage::materialize_groups(ops::Context& ctx) {
  const Tensors gradients = allocate_gradients(ctx), weights = allocate_weights(ctx);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i]->materialize(ctx,
                            {.compute = options_.compute,
                             .trains = options_.trains,
                             .whole_weights = options_.whole_weights,
                             .apart = options_.weights_apart,
                             .split = options_.split_masters},
                            gradients[i], weights[i]);
  }
  if (!options_.trains) return;
  for (const UseApart& use : uses_apart_) {
    use.gradients->take_gradients(ctx, allocate_carried(reducers(), *ctx.allocator, ctx.stream,
                                                        {gradients_kept(*use.gradients)},
                                                        DType::kF32, MemoryUse::kGradients));
  }
}

std::vector<Communicator*> Stage::communicators() const {
  std::vector<Communicator*> all;
  for (const auto& comm : communicators_) all.push_back(comm.get());
  return all;
}

Communicator& Stage::comm(const Span& span) const {
  if (span == Span(span.axes)) return grid_.comm(span.axes);
  const auto found =
      std::ranges::find(communicators_, span, [](const auto& comm) { return comm->label().span; });
  TRIREME_CHECK(found != communicators_.end(), "a span of the state has a communicator");
  return **found;
}

Communicator* Stage::together_comm() const {
  const auto found = std::ranges::find(communicators_, Purpose::kBlocks,
                                       [](const auto& comm) { return comm->label().purpose; });
  return found == communicators_.end() ? nullptr : found->get();
}

int Stage::first_trained_part() const {
  return part_with(bounds_, first_trained());
}

int Stage::first_block(int chunk) const {
  const int part = layout_.part(grid_.index(Axis::kPipeline), chunk);
  return bounds_[static_cast<std::size_t>(part)];
}

std::vector<nn::FlatGroup*> Stage::trained_groups() const {
  std::vector<nn::FlatGroup*> trained;
  std::ranges::copy_if(groups_, std::back_inserter(trained), &nn::FlatGroup::trains);
  return trained;
}

void Stage::draw_initial_values(ops::Context& ctx, std::uint64_t seed,
                                std::set<std::string>* rounded) {
  for (const nn::FlatGroup* group : groups_) {
    drawn_ += group->draw_initial_values(ctx, seed, rounded);
  }
  weights_.changed();
}

void Stage::refresh_weights(ops::Context& ctx) {
  for (const nn::FlatGroup* group : groups_) group->refresh_weights(ctx);
  weights_.changed();
}

ShardedWeights::Use Stage::used_by(int chunk, std::size_t begin, std::size_t end) const {
  ShardedWeights::Use used;
  for (std::size_t i = begin; i < end; ++i) {
    for (nn::FlatGroup* group : used_[static_cast<std::size_t>(chunk)][i]) add_once(used, group);
  }
  return used;
}

// To a shard, one communicator adds up after the other.
std::vector<Communicator*> Stage::reducers() const {
  if (sharded()) return {&grid_.comm(Axis::kShard), &grid_.comm(Axis::kReplicate)};
  return {&grid_.comm(kDataAxes)};
}

std::int64_t Stage::gradients_kept(const nn::FlatGroup& group) const {
  return options_.whole_gradients ? group.extent() : group.sharding().shard_extent();
}

// One block for all groups, because the carriers may round memory up to pages of megabytes. A
// shared group has memory of its own, of the same size on the other stages that hold it.
Tensors Stage::allocate_gradients(ops::Context& ctx) const {
  Tensors gradients(groups_.size());
  if (!options_.trains) return gradients;
  const auto allocate = [&](const std::vector<Communicator*>& carriers, std::int64_t elements) {
    return allocate_carried(carriers, *ctx.allocator, ctx.stream, {elements}, DType::kF32,
                            MemoryUse::kGradients);
  };
  const auto padded = [this](const nn::FlatGroup& group) {
    constexpr std::int64_t kAligned = 16;  // elements: 64 bytes, as every block of memory
    return (gradients_kept(group) + kAligned - 1) / kAligned * kAligned;
  };
  std::int64_t end = 0;
  for (const nn::FlatGroup* group : groups_) {
    if (group->trains() && !group->shared()) end += padded(*group);
  }
  const Tensor block = allocate(reducers(), end);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const nn::FlatGroup& group = *groups_[i];
    if (!group.trains()) continue;
    if (group.shared()) {
      std::vector<Communicator*> carriers = reducers();
      const nn::Holders& holders = group.parameters().front()->spec().holders;
      if (grid_.shape().extent(holders.ranks) > 1) carriers.push_back(&comm(holders.ranks));
      gradients[i] = allocate(carriers, gradients_kept(group));
    } else {
      gradients[i] = block.flat_range(begin, begin + gradients_kept(group));
      begin += padded(group);
    }
  }
  return gradients;
}

// One block, as of gradients. Shards are cut so that every group is aligned in it.
Tensors Stage::allocate_weights(ops::Context& ctx) const {
  Tensors weights(groups_.size());
  if (!sharded()) return weights;
  const auto kept = [this](const nn::FlatGroup& group) {
    return options_.whole_weights ? group.extent() : group.sharding().shard_extent();
  };
  std::int64_t end = 0;
  for (const nn::FlatGroup* group : groups_) end += kept(*group);
  const Tensor block = allocate_carried({&grid_.comm(Axis::kShard)}, *ctx.allocator, ctx.stream,
                                        {end}, options_.compute, MemoryUse::kParameters);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    weights[i] = block.flat_range(begin, begin + kept(*groups_[i]));
    begin += kept(*groups_[i]);
  }
  return weights;
}

std::vector<nn::BoundaryTensor> Stage::boundary_of(const Boundary& boundary, std::int64_t batch,
                                                   std::int64_t length,
                                                   const nn::TensorParallel& parallel) const {
  if (!boundary) return {};
  std::vector<nn::BoundaryTensor> tensors = boundary(batch, length, parallel);
  for (nn::BoundaryTensor& tensor : tensors) tensor.dtype = tensor.dtype.value_or(options_.compute);
  return tensors;
}

std::vector<nn::BoundaryTensor> Stage::boundary(int part, std::int64_t batch,
                                                std::int64_t length) const {
  const int last_block = bounds_[static_cast<std::size_t>(part) + 1] - 1;
  return boundary_of(boundaries_[static_cast<std::size_t>(last_block)], batch, length,
                     {&grid_.comm(Axis::kTensor), options_.sequence_parallel});
}

std::vector<nn::BoundaryTensor> Stage::whole_boundaries(std::int64_t batch,
                                                        std::int64_t length) const {
  std::vector<nn::BoundaryTensor> all;
  const int here = grid_.index(Axis::kPipeline);
  for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
    const auto part = static_cast<std::size_t>(layout_.part(here, chunk));
    for (int i = std::max(bounds_[part] - 1, 0); i < bounds_[part + 1]; ++i) {
      const Boundary& boundary = boundaries_[static_cast<std::size_t>(i)];
      for (const nn::BoundaryTensor& tensor :
           boundary_of(boundary, batch, length, {&grid_.comm(Axis::kTensor), false})) {
        if (std::ranges::find(all, tensor) == all.end()) all.push_back(tensor);
      }
    }
  }
  return all;
}

std::vector<nn::Parameter*> Stage::parameters() const {
  std::vector<nn::Parameter*> all;
  for (const nn::FlatGroup* group : groups_) {
    all.insert(all.end(), group->parameters().begin(), group->parameters().end());
  }
  return all;
}

std::vector<ResidentGroup> Stage::residences() const {
  std::vector<ResidentGroup> all;
  const auto add = [&](const nn::FlatGroup& group) {
    ResidentGroup& made = all.emplace_back(ResidentGroup{group.name(), {}, 0});
    made.index = group.sharding().index();
    for (const nn::Parameter* one : group.parameters()) made.members.push_back(one->residence());
  };
  for (const nn::FlatGroup* group : groups_) add(*group);
  for (const UseApart& use : uses_apart_) add(*use.gradients);
  return all;
}

ResidentGroup Stage::residence_of_states() const {
  const int here = grid_.index(Axis::kPipeline);
  const nn::Residence all{.name = fmt::format("states of stage {}", here),
                          .slice = nn::Placement::whole({states_.elements()}),
                          .copied = {kDataAxes, Axes(Axis::kTensor)},
                          .divided = {},
                          .summed = {kDataAxes},
                          .storage = {.master = false}};
  return {.name = "states", .members = {all}, .purpose = Purpose::kState};
}

}  // namespace trireme::parallel
