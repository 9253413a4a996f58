// Optimizers on flat shards of parameters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/ops/update.h"

namespace trireme::optim {

// The flat memory of one group of parameters, or this rank's share of it. All tensors are (n).
struct FlatShard {
  Tensor master;    // fp32
  Tensor gradient;  // fp32
  Tensor weights;   // compute type; the master tensor itself if that is fp32
  bool decay = true;
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kSgd };
  Kind kind = Kind::kAdamW;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;   // of shards that decay
  bool coupled_decay = false;  // see trireme/ops/update.h; AdamW with it is Adam
  float momentum = 0.0f;
  bool nesterov = false;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every shard by one step, with the values of the context's StepState.
  virtual void step(ops::Context& ctx) = 0;
  // The optimizer state of a shard, by name ("exp_avg"). Each tensor has the shape of the shard.
  // Checkpoints store it.
  using States = std::vector<std::pair<std::string, Tensor>>;
  virtual const States& states(std::size_t shard) const = 0;
};

// The names of the states that a rule keeps of each shard; each has as many elements.
std::vector<std::string> state_names(const OptimizerConfig& config);

// Makes an optimizer whose state is zero.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ops::Context& ctx,
                                          std::vector<FlatShard> shards);

}  // namespace trireme::optim
