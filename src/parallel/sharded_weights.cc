#include "trireme/parallel/sharded_weights.h"

#include <algorithm>
#include <utility>

namespace trireme::parallel {

ShardedWeights::ShardedWeights(std::vector<nn::FlatGroup*> groups, Communicator& shards,
                               bool whole_weights, int prefetch)
    : groups_(std::move(groups)),
      shards_(&shards),
      sharded_(!groups_.empty() && groups_.front()->sharding().count() > 1),
      whole_weights_(whole_weights),
      window_(static_cast<std::size_t>(prefetch) + 1) {}

void ShardedWeights::refresh(ops::Context& ctx) {
  if (!sharded_ || !whole_weights_ || gathered_) return;
  finish(ctx);
  for (nn::FlatGroup* group : groups_) {
    if (!group->trains() && frozen_gathered_) continue;
    const Tensor stays;
    held_[group].arrives = nn::FlatGroup::gather(ctx, *shards_, {&group, 1}, {&stays, 1});
  }
  gathered_ = frozen_gathered_ = true;
}

void ShardedWeights::finish(ops::Context& ctx) {
  if (gathers_for_uses()) return;
  for (const auto& [group, gathered] : held_) gathered.arrives.wait_on(ctx.stream);
  held_.clear();
}

void ShardedWeights::begin_pass(std::vector<Use> uses) {
  if (!sharded_) return;
  uses_ = std::move(uses);
  at_ = 0;
  if (!gathers_for_uses()) return;
  for (nn::FlatGroup* group : groups_) group->release();  // of a pass that was given up
  held_.clear();
}

void ShardedWeights::begin_use(ops::Context& ctx) {
  if (!sharded_) return;
  TRIREME_CHECK(at_ < uses_.size(), "more uses of weights than the pass has announced");
  if (gathers_for_uses()) {
    for (std::size_t i = at_; i < std::min(at_ + window_, uses_.size()); ++i) {
      gather(ctx, uses_[i]);
    }
  }
  for (const nn::FlatGroup* group : uses_[at_]) {
    if (const auto found = held_.find(group); found != held_.end()) {
      std::exchange(found->second.arrives, {}).wait_on(ctx.stream);
    }
  }
}

void ShardedWeights::gather(ops::Context& ctx, Use use) {
  std::erase_if(use, [&](const nn::FlatGroup* group) { return held_.contains(group); });
  Tensors buffers;
  for (const nn::FlatGroup* group : use) buffers.push_back(take_buffer(ctx, *group));
  const Work arrives = nn::FlatGroup::gather(ctx, *shards_, use, buffers);
  for (std::size_t i = 0; i < use.size(); ++i) held_[use[i]] = {buffers[i], arrives};
}

void ShardedWeights::end_use() {
  if (!sharded_) return;
  const Use used = uses_[at_++];
  if (!gathers_for_uses()) return;
  for (nn::FlatGroup* group : used) {
    if (used_soon(group)) continue;
    group->release();
    free_.push_back(held_.extract(group).mapped().memory);
  }
}

void ShardedWeights::connect(ops::Context& ctx) {
  refresh(ctx);
  finish(ctx);
  if (!gathers_for_uses()) return;
  std::vector<Use> each;
  for (nn::FlatGroup* group : groups_) each.push_back({group});
  begin_pass(std::move(each));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    begin_use(ctx);
    end_use();
  }
}

Tensor ShardedWeights::take_buffer(ops::Context& ctx, const nn::FlatGroup& group) {
  const auto found = std::ranges::find(free_, group.extent(), &Tensor::elements);
  if (found == free_.end()) {
    return allocate_carried({shards_}, *ctx.allocator, ctx.stream, {group.extent()},
                            group.weight_shard().dtype(), MemoryUse::kParameters);
  }
  Tensor buffer = std::move(*found);
  free_.erase(found);
  return buffer;
}

bool ShardedWeights::used_soon(const nn::FlatGroup* group) const {
  const auto begin = uses_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto end =
      uses_.begin() + static_cast<std::ptrdiff_t>(std::min(at_ + window_, uses_.size()));
  return std::any_of(begin, end,
                     [&](const Use& use) { return std::ranges::find(use, group) != use.end(); });
}

}  // namespace trireme::parallel
