#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class LionRule : public UpdateRule {
 public:
  explicit LionRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override { return {"exp_avg"}; }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::lion_step(ctx,
                   {.beta1 = settings_.beta1,
                    .beta2 = settings_.beta2,
                    .weight_decay = settings_.decoupled(shard),
                    .rate = settings_.rate},
                   shard.master, shard.gradient, states[0].second, shard.weights);
  }

 private:
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lion(const RuleSettings& settings) {
  return std::make_unique<LionRule>(settings);
}

}  // namespace trireme::optim
