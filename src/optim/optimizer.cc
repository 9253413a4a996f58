#include "trireme/optim/optimizer.h"

#include "trireme/ops/elementwise.h"

namespace trireme::optim {

Optimizer::Optimizer(const OptimizerConfig& config, ops::Context& ctx,
                     std::vector<FlatShard> shards)
    : rule_(make_rule(config)), shards_(std::move(shards)) {
  for (const FlatShard& shard : shards_) {
    States& states = states_.emplace_back();
    for (std::string& name : rule_->states()) {
      const Tensor zero = ctx.allocate(shard.master.shape(), DType::kF32, MemoryUse::kOptimizer);
      ops::fill(ctx, zero, 0.0f);
      states.emplace_back(std::move(name), zero);
    }
  }
}

void Optimizer::step(ops::Context& ctx) {
  for (std::size_t i = 0; i < shards_.size(); ++i) rule_->update(ctx, shards_[i], states_[i]);
}

}  // namespace trireme::optim
