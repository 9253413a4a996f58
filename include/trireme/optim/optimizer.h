// Optimizers on flat shards of parameters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/ops/update.h"

namespace trireme::optim {

// Flat memory of one group of parameters, or this rank's share of it; all (n).
struct FlatShard {
  Tensor master;    // fp32
  Tensor gradient;  // fp32
  Tensor weights;   // compute type; master itself for fp32
  bool decay = true;
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kSgd };
  Kind kind = Kind::kAdamW;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;
  float momentum = 0.0f;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One step on every shard, as the context's StepState says.
  virtual void step(ops::Context& ctx) = 0;
  // What it remembers of shard i, by name ("exp_avg"), each like the shard: for checkpoints.
  using States = std::vector<std::pair<std::string, Tensor>>;
  virtual const States& states(std::size_t shard) const = 0;
};

// State starts at zero.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ops::Context& ctx,
                                          std::vector<FlatShard> shards);

}  // namespace trireme::optim
