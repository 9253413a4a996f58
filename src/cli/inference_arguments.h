// The flags that `eval`, `generate` and `predict` have in common.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/options.h"
#include "trireme/comm/grid_shape.h"
#include "trireme/config/config.h"
#include "trireme/train/compute_device.h"

namespace trireme::cli {

struct InferenceArguments {
  std::string checkpoint;
  GridRequest grid;
  Config::Shard shard;
  DeviceRequest device;
  std::optional<std::string> precision;
  double timeout = 600;
};

void declare_inference(Options& options, InferenceArguments& given);
// Throws ConfigError if no checkpoint is given.
void check_inference(const InferenceArguments& given);

// Collective over the world. Sets the hang limit for loading the model: what the checkpoint's bytes
// allow (HangLimit). Once it is loaded, the caller sets given.timeout.
void allow_time_to_load(Runtime& runtime, const InferenceArguments& given);

// Resolves grid.* and shard.* for `ranks` ranks. Throws ConfigError where they do not fit.
GridShape inference_grid(const InferenceArguments& given, int ranks);

// Collective over the world; call it before any process group is made.
ComputeDevice inference_device(const InferenceArguments& given, Runtime& runtime);

}  // namespace trireme::cli
