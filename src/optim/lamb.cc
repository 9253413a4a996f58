#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class LambRule : public UpdateRule {
 public:
  explicit LambRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  bool needs_lengths() const override { return true; }

  void prepare(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::adamw_direction(ctx,
                         {.beta1 = settings_.beta1,
                          .beta2 = settings_.beta2,
                          .epsilon = settings_.epsilon,
                          .weight_decay = settings_.decoupled(shard)},
                         shard.master, shard.gradient, states[0].second, states[1].second,
                         shard.gradient);
  }

  // Parameters that do not decay take AdamW's steps.
  void update(ops::Context& ctx, const FlatShard& shard, const States& /*states*/) const override {
    Tensor length;
    if (shard.decay) {
      length = take_length(ctx,
                           {.kind = ops::StepLength::Kind::kTrust,
                            .rate = settings_.rate,
                            .largest = settings_.largest},
                           shard);
    }
    ops::step_along(ctx, {.rate = settings_.rate}, shard.master, shard.gradient, shard.weights,
                    length);
  }

 private:
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lamb(const RuleSettings& settings) {
  return std::make_unique<LambRule>(settings);
}

}  // namespace trireme::optim
