#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override {
    if (settings_.momentum == 0.0f) return {};
    return {"velocity"};
  }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::sgd_step(ctx,
                  {.momentum = settings_.momentum,
                   .weight_decay = settings_.decoupled(shard),
                   .l2_penalty = settings_.coupled(shard),
                   .nesterov = settings_.nesterov,
                   .rate = settings_.rate},
                  shard.master, shard.gradient, states.empty() ? Tensor() : states[0].second,
                  shard.weights);
  }

 private:
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const RuleSettings& settings) {
  return std::make_unique<SgdRule>(settings);
}

}  // namespace trireme::optim
