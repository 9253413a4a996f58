#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class LarsRule : public UpdateRule {
 public:
  explicit LarsRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override {
    if (settings_.momentum == 0.0f) return {};
    return {"velocity"};
  }
  bool needs_lengths() const override { return true; }

  // Parameters that do not decay take SGD's steps.
  void update(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    Tensor length;
    if (shard.decay) {
      length = take_length(ctx,
                           {.kind = ops::StepLength::Kind::kOfGradient,
                            .coefficient = settings_.coefficient,
                            .weight_decay = settings_.weight_decay},
                           shard);
    }
    ops::sgd_step(ctx,
                  {.momentum = settings_.momentum,
                   .l2_penalty = settings_.coupled(shard),
                   .nesterov = settings_.nesterov,
                   .rate = settings_.rate},
                  shard.master, shard.gradient, states.empty() ? Tensor() : states[0].second,
                  shard.weights, length);
  }

 private:
  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_lars(const RuleSettings& settings) {
  return std::make_unique<LarsRule>(settings);
}

}  // namespace trireme::optim
