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

// Neighbouring elements of flat memory that are updated alike. All tensors are (n).
struct FlatShard {
  Tensor master;    // fp32
  Tensor gradient;  // fp32
  Tensor weights;   // compute type; the master tensor itself if that is fp32
  bool decay = true;
};

// By which number a step of whole matrices, whose singular values are about 1, is multiplied.
enum class MatrixScale {
  kOriginal,   // sqrt(max(1, rows / columns)): Jordan 2024
  kLikeAdamW,  // 0.2 sqrt(max(rows, columns)): Liu et al., "Muon is scalable for LLM training",
               // 2025; steps are as long as AdamW's usually are
};

// What the keys optim.* say to a rule, which reads those that it has.
struct RuleSettings {
  std::string name = "adamw";  // optim.name
  float rate = 1.0f;           // factor on the step's learning rate
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;   // of shards that decay
  bool coupled_decay = false;  // see trireme/ops/update.h
  float momentum = 0.0f;
  bool nesterov = false;
  MatrixScale scale = MatrixScale::kLikeAdamW;
  DType matrices = DType::kF32;  // in which whole matrices travel and are computed: fp32 or bf16
  bool operator==(const RuleSettings&) const = default;

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

// What a rule computes from whole matrices before it updates shards. The frame (optimizer.h) calls
// begin() for each shard, brings the directions of each matrix together on one rank, calls whole()
// there, sends the matrix back, and hands update() the direction as the shard's gradient.
class MatrixWork {
 public:
  virtual ~MatrixWork() = default;
  virtual DType type() const = 0;  // of directions and matrices
  // Sets direction (n), which may be the shard's gradient.
  virtual void begin(ops::Context& ctx, const FlatShard& shard, const States& states,
                     const Tensor& direction) const = 0;
  // Changes the matrix (rows, columns), in place.
  virtual void whole(ops::Context& ctx, const Tensor& matrix) const = 0;
  // The floating-point operations of whole().
  virtual double cost(std::int64_t rows, std::int64_t columns) const = 0;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The names of the states that it keeps of a shard. They are zero at first.
  virtual std::vector<std::string> states() const = 0;
  // nullptr: the rule updates each element by itself.
  virtual const MatrixWork* matrices() const { return nullptr; }
  // Updates the shard and its states by one step, with the values of the context's StepState;
  // changes nothing if that says that the step is skipped.
  virtual void update(ops::Context& ctx, const FlatShard& shard, const States& states) const = 0;
};

// A line of the registry.
struct RuleKind {
  std::string_view name;  // optim.name
  // What keys have that the user leaves out: optim.lr and the others.
  double learning_rate = 1e-3;
  RuleSettings defaults = {};
  // The rule that is the same with the other way of decay: itself if it takes either, empty if
  // there is none.
  std::string_view with_other_decay = {};
  bool has_nesterov = false;
  bool counts_updates = false;  // it corrects averages by StepState::updates, from their begin on
  bool of_matrices = false;     // parameters that are no inner matrices (nn/parameter.h) get AdamW
  std::unique_ptr<UpdateRule> (*make)(const RuleSettings&) = nullptr;
};

std::span<const RuleKind> rule_kinds();
std::vector<std::string> rule_names();
// Throws InternalError if there is none of that name.
const RuleKind& rule_kind(std::string_view name);
std::unique_ptr<UpdateRule> make_rule(const RuleSettings& settings);
// Whether both keep the same states with the same meaning, so that one may go on with the other's.
bool keep_same_states(const RuleSettings& a, const RuleSettings& b);

}  // namespace trireme::optim
