#include "trireme/optim/optimizer.h"

#include "trireme/ops/elementwise.h"

namespace trireme::optim {
namespace {

Tensor zeros(ops::Context& ctx, const Tensor& like) {
  const Tensor state = ctx.allocate(like.shape(), DType::kF32, MemoryUse::kOptimizer);
  ops::fill(ctx, state, 0.0f);
  return state;
}

// The part that both optimizers share: the shards, and a list of states for each.
class ShardOptimizer : public Optimizer {
 public:
  ShardOptimizer(const OptimizerConfig& config, ops::Context& ctx, std::vector<FlatShard> shards)
      : config_(config), shards_(std::move(shards)) {
    for (const FlatShard& shard : shards_) {
      States& states = states_.emplace_back();
      for (const std::string& name : state_names(config)) {
        states.emplace_back(name, zeros(ctx, shard.master));
      }
    }
  }

  void step(ops::Context& ctx) override {
    for (std::size_t i = 0; i < shards_.size(); ++i) update(ctx, shards_[i], states_[i]);
  }
  const States& states(std::size_t shard) const override { return states_.at(shard); }

 protected:
  virtual void update(ops::Context& ctx, const FlatShard& shard, const States& states) const = 0;
  float decoupled(const FlatShard& shard) const {
    return shard.decay && !config_.coupled_decay ? config_.weight_decay : 0.0f;
  }
  float coupled(const FlatShard& shard) const {
    return shard.decay && config_.coupled_decay ? config_.weight_decay : 0.0f;
  }

  OptimizerConfig config_;

 private:
  std::vector<FlatShard> shards_;
  std::vector<States> states_;
};

class AdamWOptimizer : public ShardOptimizer {
 public:
  using ShardOptimizer::ShardOptimizer;

 protected:
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::adamw_step(ctx,
                    {.beta1 = config_.beta1,
                     .beta2 = config_.beta2,
                     .epsilon = config_.epsilon,
                     .weight_decay = decoupled(shard),
                     .l2_penalty = coupled(shard)},
                    shard.master, shard.gradient, states[0].second, states[1].second,
                    shard.weights);
  }
};

class SgdOptimizer : public ShardOptimizer {
 public:
  using ShardOptimizer::ShardOptimizer;

 protected:
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::sgd_step(ctx,
                  {.momentum = config_.momentum,
                   .weight_decay = decoupled(shard),
                   .l2_penalty = coupled(shard),
                   .nesterov = config_.nesterov},
                  shard.master, shard.gradient, states.empty() ? Tensor() : states[0].second,
                  shard.weights);
  }
};

}  // namespace

std::vector<std::string> state_names(const OptimizerConfig& config) {
  if (config.kind == OptimizerConfig::Kind::kAdamW) return {"exp_avg", "exp_avg_sq"};
  if (config.momentum == 0.0f) return {};
  return {"velocity"};
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ops::Context& ctx,
                                          std::vector<FlatShard> shards) {
  if (config.kind == OptimizerConfig::Kind::kAdamW) {
    return std::make_unique<AdamWOptimizer>(config, ctx, std::move(shards));
  }
  return std::make_unique<SgdOptimizer>(config, ctx, std::move(shards));
}

}  // namespace trireme::optim
