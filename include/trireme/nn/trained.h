// Which parameters of a model train, known before the model is built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/name_patterns.h"
#include "trireme/nn/block.h"

namespace trireme::nn {

struct TrainedParameters {
  NamePatterns frozen;  // names of the parameters that stay as they are; empty: all train
  // The elements of the parameters that train, by block of the plan. A parameter that blocks share
  // counts where it is used first. Empty: all train.
  std::vector<std::int64_t> elements;
  std::vector<std::string> frozen_names;  // in the order of the model

  bool all() const { return frozen.empty(); }
  // The first block of the plan that has a parameter that trains. The backward ends there.
  int first_block() const;
  std::int64_t total() const;  // elements
};

// Declares the parameters of all blocks, as one rank has them, and allocates nothing. Throws
// ConfigError, which names optim.freeze, where a pattern matches no parameter, or all are frozen,
// or a part of what lies together in memory.
TrainedParameters trained_parameters(const ModelPlan& plan, const NamePatterns& frozen);

}  // namespace trireme::nn
