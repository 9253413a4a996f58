// Which shards an optimizer decays, and by which of the two ways.
#include "trireme/optim/optimizer.h"

#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

// One weight of value 2 with gradient 1 after one step at learning rate 0.5, decayed or not.
float after_a_step(const OptimizerConfig& config, bool decay) {
  ops::Context ctx = ops::make_cpu_context(1);
  ctx.step_state->learning_rate = 0.5f;
  ctx.step_state->updates = 1;
  FlatShard shard{.master = ctx.allocate({1}, DType::kF32, MemoryUse::kParameters),
                  .gradient = ctx.allocate({1}, DType::kF32, MemoryUse::kGradients),
                  .weights = {},
                  .decay = decay};
  shard.master.data<float>()[0] = 2.0f;
  shard.gradient.data<float>()[0] = 1.0f;
  shard.weights = shard.master;
  Optimizer(config, ctx, {shard}).step(ctx);
  return shard.master.data<float>()[0];
}

const OptimizerConfig kSgd = {.rule = "sgd", .weight_decay = 0.25f, .momentum = 0.5f};

TEST(Optimizer, NamesWhatItKeeps) {
  const auto kept = [](const OptimizerConfig& config) {
    ops::Context ctx = ops::make_cpu_context(1);
    const Tensor one = ctx.allocate({1}, DType::kF32, MemoryUse::kParameters);
    std::vector<std::string> names;
    const FlatShard shard{.master = one, .gradient = one, .weights = one};
    const Optimizer optimizer(config, ctx, {shard});
    for (const auto& [name, state] : optimizer.states(0)) names.push_back(name);
    return names;
  };
  OptimizerConfig plain = kSgd;
  plain.momentum = 0.0f;
  for (const OptimizerConfig& config : {OptimizerConfig(), kSgd, plain}) {
    EXPECT_EQ(kept(config), make_rule(config)->states());
  }
  EXPECT_EQ(kept({}).size(), 2u);
  EXPECT_EQ(kept(kSgd).size(), 1u);
  EXPECT_TRUE(kept(plain).empty());
}

TEST(Optimizer, NoDecayWhereAShardHasNone) {
  for (const bool coupled : {false, true}) {
    OptimizerConfig config = kSgd;
    config.coupled_decay = coupled;
    EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f * 1.0f);
    EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.0f + 0.25f * 2.0f));
    config.rule = "adamw";
    EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f);  // Adam's first step has length 1
  }
}

TEST(Optimizer, DecayIsDecoupledOrCoupled) {
  OptimizerConfig config{.weight_decay = 0.25f};
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f - 0.5f * 0.25f * 2.0f);
  config.coupled_decay = true;  // a gradient of 1.5 is a step of length 1, too
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f);
  config = kSgd;
  config.nesterov = true;  // g + momentum * velocity, and the decay once
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.5f + 0.25f * 2.0f));
  config.coupled_decay = true;  // the decay goes through the momentum
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * 1.5f * (1.0f + 0.25f * 2.0f));
}

// Of no rule that the registry has are defaults or states left to chance.
TEST(Optimizer, EveryRuleHasALineInTheRegistry) {
  std::map<std::string_view, std::size_t> states;
  for (const RuleKind& kind : rule_kinds()) {
    EXPECT_EQ(kind.defaults.rule, kind.name);
    EXPECT_GT(kind.learning_rate, 0.0);
    if (!kind.with_other_decay.empty()) rule_kind(kind.with_other_decay);
    states[kind.name] = make_rule(kind.defaults)->states().size();
  }
  EXPECT_EQ(states, (std::map<std::string_view, std::size_t>{
                        {"adam", 2}, {"adamw", 2}, {"lion", 1}, {"sgd", 1}}));
  EXPECT_LT(rule_kind("lion").learning_rate, rule_kind("adamw").learning_rate);
  EXPECT_THROW(rule_kind("lamb"), InternalError);
}

TEST(Optimizer, LionGoesByTheSign) {
  OptimizerConfig config = rule_kind("lion").defaults;
  config.weight_decay = 0.25f;
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.0f + 0.25f * 2.0f));
  EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f);
}

}  // namespace
}  // namespace trireme::optim
