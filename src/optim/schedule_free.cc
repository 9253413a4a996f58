#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class ScheduleFreeRule : public UpdateRule {
 public:
  explicit ScheduleFreeRule(const RuleSettings& settings) : settings_(settings) {}

  // "gap": between the point that steps lead to and the average, which is the master value.
  std::vector<std::string> states(const Shape& /*global*/) const override {
    return {"gap", "exp_avg_sq"};
  }
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    ops::schedule_free_step(ctx, of(shard), shard.master, shard.gradient, states[0].second,
                            states[1].second, shard.weights);
  }
  void write_weights(ops::Context& ctx, const FlatShard& shard,
                     const States& states) const override {
    ops::schedule_free_weights(ctx, of(shard), shard.master, states[0].second, shard.weights);
  }

 private:
  ops::ScheduleFree of(const FlatShard& shard) const {
    return {.beta1 = settings_.beta1,
            .beta2 = settings_.beta2,
            .epsilon = settings_.epsilon,
            .weight_decay = settings_.decoupled(shard),
            .rate = settings_.rate};
  }
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_schedule_free(const RuleSettings& settings) {
  return std::make_unique<ScheduleFreeRule>(settings);
}

}  // namespace trireme::optim
