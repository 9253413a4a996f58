// The rules, for the registry, and what several of them do.
#pragma once

#include "trireme/ops/lengths.h"
#include "trireme/optim/update_rule.h"

namespace trireme::optim {

// Returns the length (1) fp32 of a shard's step (ops::step_length), for rules that need lengths.
inline Tensor take_length(ops::Context& ctx, const ops::StepLength& rule, const FlatShard& shard) {
  const Tensor length = ctx.allocate({1}, DType::kF32, MemoryUse::kWorkspace);
  ops::step_length(ctx, rule, shard.whole->squares, length);
  return length;
}

std::unique_ptr<UpdateRule> make_adafactor(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_adamw(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lamb(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lars(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lion(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_muon(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_schedule_free(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_sgd(const RuleSettings& settings);

}  // namespace trireme::optim
