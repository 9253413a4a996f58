// Steps on a described device beside those of perf/RESULTS.md: the sums of their programs' times.
#include <gtest/gtest.h>

#include "trireme/models/family.h"
#include "trireme/plan/device_description.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/dry_run_input.h"

namespace trireme::plan {
namespace {

// The seconds of what a step queues on a GPU, all of it one after another.
double seconds_of_step(const DeviceCosts& costs, const models::ModelRequest& request, int samples) {
  Config config;
  config.batch.global = config.batch.micro = samples;
  config.run.precision = "bf16";
  DryRunInput input = dry_run_input(config, models::resolve(request, {}), GridShape{});
  input.device = {.gpu_memory = static_cast<std::int64_t>(costs.device().memory)};
  input.records = true;
  const StepProgram program = record_stages(input, 1).at(0).program;
  double seconds = 0.0;
  for (const ProgramEntry& entry : program.entries) {
    if (entry.kind == ProgramEntry::Kind::kCompute || entry.kind == ProgramEntry::Kind::kCopy) {
      seconds += costs.seconds(entry, program.name_of(entry));
    }
  }
  return seconds;
}

// perf/RESULTS.md, on an H200. No constant of the device was fitted to these. The losses that were
// measured took slices of 4,096 rows, the residual was added in a pass of its own, and depthwise
// convolutions made one gradient after the other and did nothing of the norms' work.
TEST(DeviceSteps, ComeNearThoseOfAnH200) {
  const DeviceCosts costs(known_device("h200"));
  EXPECT_NEAR(seconds_of_step(costs, {.family = "gpt", .keys = {{"preset", "gpt2-124m"}}}, 64),
              0.89 * 120.0e-3, 1e-3);
  EXPECT_NEAR(
      seconds_of_step(
          costs, {.family = "bert", .keys = {{"preset", "bert-base"}, {"context", "512"}}}, 64),
      0.98 * 49.56e-3, 1e-3);
  EXPECT_NEAR(
      seconds_of_step(costs, {.family = "mobilenet_v2", .keys = {{"preset", "mobilenet_v2"}}}, 256),
      0.70 * 37.2e-3, 1e-3);
}

}  // namespace
}  // namespace trireme::plan
