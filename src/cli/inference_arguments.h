// The flags that `eval`, `generate` and `predict` have in common.
#pragma once

#include "trireme/base/options.h"
#include "trireme/inference/prepared_inference.h"

namespace trireme::cli {

// --weights: "last" or "average".
void declare_weights(Options& options, std::string& weights);
void declare_inference(Options& options, InferenceRequest& given);
// Throws ConfigError if no checkpoint is given.
void check_inference(const InferenceRequest& given);

}  // namespace trireme::cli
