// How optimizers change weights: a rule for each value of optim.name, in a registry.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/ops/context.h"

namespace trireme::optim {

// The flat memory of one group of parameters, or this rank's share of it. All tensors are (n).
struct FlatShard {
  Tensor master;    // fp32
  Tensor gradient;  // fp32
  Tensor weights;   // compute type; the master tensor itself if that is fp32
  bool decay = true;
};

// What the keys optim.* say to a rule, which reads those that it has.
struct OptimizerConfig {
  std::string rule = "adamw";  // optim.name
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;   // of shards that decay
  bool coupled_decay = false;  // see trireme/ops/update.h
  float momentum = 0.0f;
  bool nesterov = false;

  // The decay of a shard, in one of the two ways.
  float decoupled(const FlatShard& shard) const {
    return shard.decay && !coupled_decay ? weight_decay : 0.0f;
  }
  float coupled(const FlatShard& shard) const {
    return shard.decay && coupled_decay ? weight_decay : 0.0f;
  }
};

// The states of a shard, by name ("exp_avg"). Checkpoints store them. Each is fp32 and has the
// shape of the shard.
using States = std::vector<std::pair<std::string, Tensor>>;

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The names of the states that it keeps of a shard. They are zero at first.
  virtual std::vector<std::string> states() const = 0;
  // Updates the shard and its states by one step, with the values of the context's StepState;
  // changes nothing if that says that the step is skipped.
  virtual void update(ops::Context& ctx, const FlatShard& shard, const States& states) const = 0;
};

// A line of the registry.
struct RuleKind {
  std::string_view name;  // optim.name
  // What keys have that the user leaves out: optim.lr and the others.
  double learning_rate = 1e-3;
  OptimizerConfig defaults = {};
  // The rule that is the same with the other way of decay: itself if it takes either, empty if
  // there is none.
  std::string_view with_other_decay = {};
  bool has_nesterov = false;
  std::unique_ptr<UpdateRule> (*make)(const OptimizerConfig&) = nullptr;
};

std::span<const RuleKind> rule_kinds();
// Throws InternalError if there is none of that name.
const RuleKind& rule_kind(std::string_view name);
std::unique_ptr<UpdateRule> make_rule(const OptimizerConfig& config);
// Whether both keep the same states with the same meaning, so that one may go on with the other's.
bool keep_same_states(const OptimizerConfig& a, const OptimizerConfig& b);

}  // namespace trireme::optim
