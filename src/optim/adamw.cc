#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

// With coupled decay it is Adam.
class AdamWRule : public UpdateRule {
 public:
  explicit AdamWRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::adamw_step(ctx,
                    {.beta1 = settings_.beta1,
                     .beta2 = settings_.beta2,
                     .epsilon = settings_.epsilon,
                     .weight_decay = settings_.decoupled(shard),
                     .l2_penalty = settings_.coupled(shard),
                     .rate = settings_.rate},
                    shard.master, shard.gradient, states[0].second, states[1].second,
                    shard.weights);
  }

 private:
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const RuleSettings& settings) {
  return std::make_unique<AdamWRule>(settings);
}

}  // namespace trireme::optim
