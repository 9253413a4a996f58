#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> states() const override {
    if (config_.momentum == 0.0f) return {};
    return {"velocity"};
  }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::sgd_step(ctx,
                  {.momentum = config_.momentum,
                   .weight_decay = config_.decoupled(shard),
                   .l2_penalty = config_.coupled(shard),
                   .nesterov = config_.nesterov},
                  shard.master, shard.gradient, states.empty() ? Tensor() : states[0].second,
                  shard.weights);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config) {
  return std::make_unique<SgdRule>(config);
}

}  // namespace trireme::optim
