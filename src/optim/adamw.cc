#include <vector>

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
    const ShardUpdate one{shard, &states};
    update_all(ctx, std::span(&one, 1));
  }
  void update_all(ops::Context& ctx, std::span<const ShardUpdate> updates) const override {
    std::vector<ops::AdamWPart> parts;
    for (const auto& [shard, states] : updates) {
      parts.push_back({.rule = rule_of(shard),
                       .master = shard.master,
                       .gradient = shard.gradient,
                       .exp_avg = states->at(0).second,
                       .exp_avg_sq = states->at(1).second,
                       .weights = shard.weights});
    }
    ops::adamw_step(ctx, parts);
  }

 private:
  ops::AdamW rule_of(const FlatShard& shard) const {
    return {.beta1 = settings_.beta1,
            .beta2 = settings_.beta2,
            .epsilon = settings_.epsilon,
            .weight_decay = settings_.decoupled(shard),
            .l2_penalty = settings_.coupled(shard),
            .rate = settings_.rate};
  }

  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const RuleSettings& settings) {
  return std::make_unique<AdamWRule>(settings);
}

}  // namespace trireme::optim
