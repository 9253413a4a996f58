// The parameters that a model's blocks declare, known before the model is built.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/base/name_patterns.h"
#include "trireme/nn/block.h"

namespace trireme::nn {

// Returns the parameters by block, as one rank has them. Allocates nothing. What blocks share is
// there once, where it is used first. Throws ConfigError if `frozen` takes a part of what lies
// together in memory.
std::vector<std::vector<ParameterSpec>> declared_by_block(const ModelPlan& plan,
                                                          const NamePatterns& frozen = {});
// Returns the parameters of all blocks in their order.
std::vector<ParameterSpec> declared_parameters(const ModelPlan& plan);

// Throws ConfigError that names `key` and some names that there are, where a pattern matches none.
void refuse_patterns_without_match(std::string_view key, const NamePatterns& patterns,
                                   const std::vector<ParameterSpec>& parameters);

}  // namespace trireme::nn
