// The optimizer of a stage: an update rule on all of its shards.
#pragma once

#include <memory>
#include <vector>

#include "trireme/optim/update_rule.h"

namespace trireme::optim {

class Optimizer {
 public:
  // The states are zero.
  Optimizer(const OptimizerConfig& config, ops::Context& ctx, std::vector<FlatShard> shards);

  // Updates every shard by one step, with the values of the context's StepState.
  void step(ops::Context& ctx);
  const States& states(std::size_t shard) const { return states_.at(shard); }

 private:
  std::unique_ptr<UpdateRule> rule_;
  std::vector<FlatShard> shards_;
  std::vector<States> states_;  // by shard
};

}  // namespace trireme::optim
