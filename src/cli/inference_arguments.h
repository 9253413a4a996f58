// The flags that `eval` and `generate` have in common.
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/process_grid.h"
#include "trireme/config/options.h"
#include "trireme/ops/context.h"

namespace trireme::cli {

struct InferenceArguments {
  std::string checkpoint;
  GridRequest grid;
  std::optional<int> threads;
  std::optional<std::string> precision;
  double timeout = 600;
};

void declare_inference(Options& options, InferenceArguments& given);
// Throws ConfigError where no checkpoint is given.
void check_inference(const InferenceArguments& given);

ops::Context inference_context(const InferenceArguments& given, const Runtime& runtime);

}  // namespace trireme::cli
