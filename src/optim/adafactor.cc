#include "trireme/ops/adafactor.h"

#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

class AdafactorRule : public UpdateRule, public LineWork {
 public:
  explicit AdafactorRule(const RuleSettings& settings)
      : settings_(settings),
        averages_{.decay = settings.share_decay, .epsilon = settings.epsilon} {}

  std::vector<std::string> states(const Shape& global) const override {
    if (lines(global) != nullptr) return {};
    return {"variance"};
  }
  const LineWork* lines(const Shape& global) const override {
    return global.rank() > 1 ? this : nullptr;
  }
  bool needs_lengths() const override { return true; }

  void average(ops::Context& ctx, const Tensor& sums,
               const WholeParameter& parameter) const override {
    ops::average_lines(ctx, averages_, sums, parameter.rows, parameter.columns, parameter.mean);
  }

  void prepare(ops::Context& ctx, const FlatShard& shard, const States& states) const override {
    const WholeParameter& whole = *shard.whole;
    if (!whole.rows.defined()) {
      ops::divide_by_average(ctx, averages_, shard.gradient, states[0].second, shard.gradient);
      return;
    }
    for (const WholeParameter::Box& part : whole.boxes) {
      const Tensor gradient =
          shard.gradient.flat_range(part.at, part.at + part.box.rows * part.box.stride);
      ops::divide_by_lines(ctx, averages_, part.box, gradient, whole.rows, whole.columns,
                           whole.mean, gradient);
    }
  }

  void update(ops::Context& ctx, const FlatShard& shard, const States& /*states*/) const override {
    const Tensor length = take_length(ctx,
                                      {.kind = ops::StepLength::Kind::kRelative,
                                       .rate = settings_.rate,
                                       .largest = settings_.largest,
                                       .elements = shard.whole->elements},
                                      shard);
    ops::step_along(ctx, {.weight_decay = settings_.decoupled(shard), .rate = settings_.rate},
                    shard.master, shard.gradient, shard.weights, length);
  }

 private:
  RuleSettings settings_;
  ops::Adafactor averages_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const RuleSettings& settings) {
  return std::make_unique<AdafactorRule>(settings);
}

}  // namespace trireme::optim
