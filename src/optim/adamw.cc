#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

// With coupled decay it is Adam.
class AdamWRule : public UpdateRule {
 public:
  explicit AdamWRule(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> states() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::adamw_step(ctx,
                    {.beta1 = config_.beta1,
                     .beta2 = config_.beta2,
                     .epsilon = config_.epsilon,
                     .weight_decay = config_.decoupled(shard),
                     .l2_penalty = config_.coupled(shard)},
                    shard.master, shard.gradient, states[0].second, states[1].second,
                    shard.weights);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config) {
  return std::make_unique<AdamWRule>(config);
}

}  // namespace trireme::optim
