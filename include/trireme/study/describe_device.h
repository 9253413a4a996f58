// Measures this machine for a planner: what `trireme bench ops --describe FILE` writes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/plan/device_description.h"
#include "trireme/setup/compute_device.h"

namespace trireme::bench {

struct DescribeOptions {
  std::string name;          // of the description
  std::vector<DType> types;  // to compute in
  double seconds = 100.0;    // for measuring; at least the smallest model is measured
  std::function<void(const std::string& line)> report = {};  // of progress
};

// Collective over the world: all ranks measure the same at the same time, each alone, since ranks
// of a node share its memory; the description of each rank is of itself. Measures products of a
// grid of sizes, and every operation of steps of small models (gpt, llama, gemma, bert,
// mobilenet_v2), in rounds that take turns, so that a machine that is busy for a while is so for
// all alike. Of each operation the mean of the middle half counts.
plan::DeviceDescription describe_device(Runtime& runtime, const ComputeDevice& device,
                                        const DescribeOptions& options);

}  // namespace trireme::bench
