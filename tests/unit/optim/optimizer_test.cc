// Which shards an optimizer decays, and by which of the two ways.
#include "trireme/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/ops/elementwise.h"

namespace trireme::optim {
namespace {

// One weight of value 2 after steps with these gradients at learning rate 0.5, decayed or not, and
// then the weight that steps go on from, and the states.
std::vector<float> after_steps(const RuleSettings& settings, bool decay,
                               const std::vector<float>& gradients) {
  ops::Context ctx = ops::make_cpu_context(1);
  ops::StepState& step = *ctx.step_state;
  step.learning_rate = 0.5f;
  const auto value = [&](float of) {
    const Tensor made = ctx.allocate({1}, DType::kF32, MemoryUse::kParameters);
    made.data<float>()[0] = of;
    return made;
  };
  const Tensor master = value(2.0f);
  const auto rule = make_rule(settings);
  States states;
  for (const std::string& name : rule->states({1})) states.emplace_back(name, value(0.0f));
  WholeParameter whole;
  whole.elements = 1;
  whole.squares = ctx.allocate({2}, DType::kF64, MemoryUse::kParameters);
  const bool apart = rule_kind(settings.name).averages_weights;
  const FlatShard shard = {.master = master,
                           .gradient = value(0.0f),
                           .weights = apart ? value(2.0f) : master,
                           .decay = decay,
                           .whole = &whole};
  const auto square = [](const Tensor& x) {
    return static_cast<double>(x.data<float>()[0]) * static_cast<double>(x.data<float>()[0]);
  };
  for (const float gradient : gradients) {
    ++step.updates;
    step.rate_squares += 0.25;
    shard.gradient.data<float>()[0] = gradient;
    rule->prepare(ctx, shard, states);
    whole.squares.data<double>()[0] = square(master);
    whole.squares.data<double>()[1] = square(shard.gradient);
    rule->update(ctx, shard, states);
  }
  std::vector<float> values = {master.data<float>()[0], shard.weights.data<float>()[0]};
  for (const auto& [name, state] : states) values.push_back(state.data<float>()[0]);
  return values;
}

// The weight after one step with gradient 1.
float after_a_step(const RuleSettings& settings, bool decay) {
  return after_steps(settings, decay, {1.0f}).front();
}

const RuleSettings kSgd = {.name = "sgd", .weight_decay = 0.25f, .momentum = 0.5f};

TEST(Optimizer, NamesWhatItKeeps) {
  RuleSettings plain = kSgd;
  plain.momentum = 0.0f;
  EXPECT_EQ(make_rule({})->states({8, 4}).size(), 2u);
  EXPECT_EQ(make_rule(kSgd)->states({8, 4}).size(), 1u);
  EXPECT_TRUE(make_rule(plain)->states({8, 4}).empty());
  EXPECT_FALSE(keeps_states(plain));
  const auto adafactor = make_rule(rule_kind("adafactor").defaults);
  EXPECT_TRUE(adafactor->states({8, 4}).empty());  // but averages of lines
  EXPECT_NE(adafactor->lines({8, 4}), nullptr);
  EXPECT_EQ(adafactor->states({8}).size(), 1u);
  EXPECT_EQ(adafactor->lines({8}), nullptr);
  EXPECT_TRUE(keeps_states(rule_kind("adafactor").defaults));
}

TEST(Optimizer, NoDecayWhereAShardHasNone) {
  for (const bool coupled : {false, true}) {
    RuleSettings config = kSgd;
    config.coupled_decay = coupled;
    EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f * 1.0f);
    EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.0f + 0.25f * 2.0f));
    config.name = "adamw";
    EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f);  // Adam's first step has length 1
  }
}

TEST(Optimizer, DecayIsDecoupledOrCoupled) {
  RuleSettings config{.weight_decay = 0.25f};
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f - 0.5f * 0.25f * 2.0f);
  config.coupled_decay = true;  // a gradient of 1.5 is a step of length 1, too
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f);
  config = kSgd;
  config.nesterov = true;  // g + momentum * velocity, and the decay once
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.5f + 0.25f * 2.0f));
  config.coupled_decay = true;  // the decay goes through the momentum
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * 1.5f * (1.0f + 0.25f * 2.0f));
}

// No rule that the registry has leaves its defaults or states to chance.
TEST(Optimizer, EveryRuleHasALineInTheRegistry) {
  std::map<std::string_view, std::size_t> states;
  for (const RuleKind& kind : rule_kinds()) {
    EXPECT_EQ(kind.defaults.name, kind.name);
    EXPECT_GT(kind.learning_rate, 0.0);
    if (!kind.with_other_decay.empty()) rule_kind(kind.with_other_decay);
    states[kind.name] = make_rule(kind.defaults)->states({1}).size();
  }
  EXPECT_EQ(states, (std::map<std::string_view, std::size_t>{{"adafactor", 1},
                                                             {"adam", 2},
                                                             {"adamw", 2},
                                                             {"lamb", 2},
                                                             {"lars", 1},
                                                             {"lion", 1},
                                                             {"muon", 1},
                                                             {"schedule_free", 2},
                                                             {"sgd", 1}}));
  EXPECT_LT(rule_kind("lion").learning_rate, rule_kind("adamw").learning_rate);
  EXPECT_THROW(rule_kind("adagrad"), InternalError);
}

TEST(Optimizer, RulesReadTheirKeysAlone) {
  using Set = void (*)(RuleSettings&);
  const std::pair<std::string_view, Set> keys[] = {
      {"beta1", [](RuleSettings& s) { s.beta1 = 0.25f; }},
      {"beta2", [](RuleSettings& s) { s.beta2 = 0.25f; }},
      {"eps", [](RuleSettings& s) { s.epsilon = 4.0f; }},
      {"momentum", [](RuleSettings& s) { s.momentum = 0.25f; }},
      {"nesterov", [](RuleSettings& s) { s.nesterov = true; }},
      {"lars_coefficient", [](RuleSettings& s) { s.coefficient = 0.25f; }},
      {"adafactor_decay", [](RuleSettings& s) { s.share_decay = -0.25f; }},
  };
  for (const RuleKind& kind : rule_kinds()) {
    if (kind.of_matrices) continue;  // it has no step of one weight
    const auto result = [](const RuleSettings& settings) {
      std::vector<float> values = after_steps(settings, true, {1.0f, -0.05f});
      const std::vector<float> more = after_steps(settings, false, {1.0f, -0.05f});
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    for (const auto& [key, set] : keys) {
      RuleSettings changed = kind.defaults;
      set(changed);
      EXPECT_EQ(result(changed) != result(kind.defaults), kind.has(key)) << kind.name << ' ' << key;
    }
    RuleSettings limited = kind.defaults;
    limited.largest = 0.25f;
    EXPECT_EQ(result(limited) != result(kind.defaults),
              kind.has("lamb_clip") || kind.has("adafactor_clip"))
        << kind.name;
  }
}

// A weight of 2 whose direction is 1, or 1.5 with its decay.
TEST(Optimizer, LambStepsAreAsLongAsTheWeights) {
  RuleSettings config = rule_kind("lamb").defaults;
  config.weight_decay = 0.25f;
  EXPECT_NEAR(after_a_step(config, true), 2.0f - 0.5f * 2.0f, 1e-5f);
  EXPECT_NEAR(after_a_step(config, false), 2.0f - 0.5f, 1e-5f);
  config.largest = 1.2f;  // not 2 / 1.5
  EXPECT_NEAR(after_a_step(config, true), 2.0f - 0.5f * 1.2f * 1.5f, 1e-5f);
}

TEST(Optimizer, LarsStepsAreAShareOfTheWeights) {
  RuleSettings config = rule_kind("lars").defaults;
  config.weight_decay = 0.25f;
  const float ratio = 0.001f * 2.0f / (1.0f + 0.25f * 2.0f);
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * ratio * (1.0f + 0.25f * 2.0f));
  EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f);
}

TEST(Optimizer, AdafactorStepsAreRelative) {
  RuleSettings config = rule_kind("adafactor").defaults;
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * 2.0f);
  config.weight_decay = 0.25f;
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (2.0f + 0.25f * 2.0f));
  config.largest = 0.5f;
  EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f * 2.0f / 2.0f);
}

TEST(Optimizer, LionGoesByTheSign) {
  RuleSettings config = rule_kind("lion").defaults;
  config.weight_decay = 0.25f;
  EXPECT_FLOAT_EQ(after_a_step(config, true), 2.0f - 0.5f * (1.0f + 0.25f * 2.0f));
  EXPECT_FLOAT_EQ(after_a_step(config, false), 2.0f - 0.5f);
}

// A matrix in double, row by row.
struct Reference {
  std::int64_t rows, columns;
  std::vector<double> values;

  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
};

Reference product(const Reference& a, const Reference& b) {
  Reference c{a.rows, b.columns, std::vector<double>(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Reference transposed(const Reference& a) {
  Reference t{a.columns, a.rows, a.values};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

// Computes Jordan's formulas: a x + (b A + c A²) x with A = x xᵀ, five times, of the flat matrix.
Reference orthogonal(const Reference& given) {
  if (given.rows > given.columns) return transposed(orthogonal(transposed(given)));
  Reference x = given;
  double squares = 0.0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Reference a = product(x, transposed(x));
    Reference polynomial = product(a, a);
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      polynomial.values[i] = -4.7750 * a.values[i] + 2.0315 * polynomial.values[i];
    }
    const Reference more = product(polynomial, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] + more.values[i];
    }
  }
  return x;
}

TEST(Optimizer, MuonMakesMatricesOrthogonal) {
  ops::Context ctx = ops::make_cpu_context(1);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const auto& [rows, columns] : {std::pair<int, int>{24, 40}, {40, 24}, {16, 16}, {1, 9}}) {
      Reference given{rows, columns, {}};
      std::vector<float> drawn(static_cast<std::size_t>(rows * columns));
      philox_normals(philox_key(3, "matrix"), 0, std::span(drawn));
      given.values.assign(drawn.begin(), drawn.end());
      const Reference expected = orthogonal(given);
      for (const MatrixScale scale : {MatrixScale::kOriginal, MatrixScale::kLikeAdamW}) {
        const auto rule = make_rule({.name = "muon", .scale = scale, .matrices = type});
        const Tensor exact = ctx.allocate({rows, columns}, DType::kF32, MemoryUse::kWorkspace);
        const Tensor matrix = ctx.allocate({rows, columns}, type, MemoryUse::kWorkspace);
        std::ranges::copy(drawn, exact.data<float>());
        ops::cast(ctx, exact, matrix);
        rule->matrices()->whole(ctx, matrix);
        ops::cast(ctx, matrix, exact);
        const double factor = scale == MatrixScale::kOriginal
                                  ? std::sqrt(std::max(1.0, double(rows) / columns))
                                  : 0.2 * std::sqrt(std::max(rows, columns));
        double largest = 0.0;
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          largest =
              std::max(largest, std::abs(exact.data<float>()[i] / factor - expected.values[i]));
        }
        // Elements are about 0.2. Small singular values are made 500 times as large, with what was
        // rounded.
        EXPECT_LT(largest, type == DType::kF32 ? 2e-5 : 0.1) << rows << " x " << columns;
      }
    }
  }
}

// A whole step by torch.optim.Muon's formulas: lerp, Nesterov, decay by the unadjusted rate.
TEST(Optimizer, MuonAveragesAndDecays) {
  ops::Context ctx = ops::make_cpu_context(1);
  ctx.step_state->learning_rate = 0.5f;
  const RuleSettings settings = {
      .name = "muon", .weight_decay = 0.25f, .momentum = 0.75f, .nesterov = true};
  const auto rule = make_rule(settings);
  const auto value = [&](float of) {
    const Tensor made = ctx.allocate({1}, DType::kF32, MemoryUse::kParameters);
    made.data<float>()[0] = of;
    return made;
  };
  FlatShard shard{.master = value(2.0f), .gradient = value(1.0f), .weights = {}};
  shard.weights = shard.master;
  const States states = {{"momentum", value(4.0f)}};
  const Tensor direction = value(0.0f);
  rule->matrices()->begin(ctx, shard, states, direction);
  EXPECT_FLOAT_EQ(states[0].second.data<float>()[0], 0.75f * 4.0f + 0.25f * 1.0f);
  EXPECT_FLOAT_EQ(direction.data<float>()[0], 0.75f * 3.25f + 0.25f * 1.0f);
  shard.gradient = value(0.5f);
  rule->update(ctx, shard, states);
  EXPECT_FLOAT_EQ(shard.master.data<float>()[0], 2.0f - 0.5f * (0.5f + 0.25f * 2.0f));
}

nn::ParameterSpec parameter(std::string name, const Shape& shape, bool inner_matrix) {
  return {.name = std::move(name),
          .placement = nn::Placement::whole(shape),
          .initial = {},
          .holders = {},
          .inner_matrix = inner_matrix};
}

TEST(Optimizer, ChoosesARuleForEachParameter) {
  OptimizerConfig muon;
  muon.rule = rule_kind("muon").defaults;
  muon.others.rate = 0.5f;
  EXPECT_EQ(muon.of(parameter("blocks.0.up.weight", {8, 4}, true)).name, "muon");
  EXPECT_EQ(muon.of(parameter("token.weight", {8, 4}, false)).name, "adamw");
  EXPECT_EQ(muon.of(parameter("token.weight", {8, 4}, false)).rate, 0.5f);
  OptimizerConfig groups = muon;
  groups.groups = {{NamePatterns({"token.*"}), rule_kind("lion").defaults, 0.25f, 0.0f},
                   {NamePatterns({"*.weight"}), std::nullopt, 2.0f, 3.0f}};
  const RuleSettings chosen = groups.of(parameter("token.weight", {8, 4}, false));
  EXPECT_EQ(chosen.name, "lion");
  EXPECT_EQ(chosen.rate, 0.5f);
  EXPECT_EQ(chosen.weight_decay, 0.0f);
  EXPECT_EQ(groups.of(parameter("blocks.0.up.weight", {8, 4}, true)).rate, 2.0f);
  EXPECT_EQ(groups.of(parameter("blocks.0.up.bias", {8}, false)).rate, 0.5f);
  groups.groups = {{NamePatterns({"*.bias"}), rule_kind("muon").defaults, 1.0f, 1.0f}};
  EXPECT_THROW(groups.of(parameter("blocks.0.up.bias", {8}, false)), ConfigError);
  EXPECT_EQ(muon.most_states(), 2u);
}

}  // namespace
}  // namespace trireme::optim
