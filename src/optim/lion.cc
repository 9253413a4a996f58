#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class LionRule : public UpdateRule {
 public:
  explicit LionRule(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> states() const override { return {"exp_avg"}; }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::lion_step(
        ctx,
        {.beta1 = config_.beta1, .beta2 = config_.beta2, .weight_decay = config_.decoupled(shard)},
        shard.master, shard.gradient, states[0].second, shard.weights);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion(const OptimizerConfig& config) {
  return std::make_unique<LionRule>(config);
}

}  // namespace trireme::optim
