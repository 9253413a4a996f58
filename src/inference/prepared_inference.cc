#include "trireme/inference/prepared_inference.h"

#include <utility>

#include "trireme/base/log.h"
#include "trireme/setup/communication.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/finite_values.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/setup/grid_placement.h"
#include "trireme/setup/hang_limit.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/step_traffic.h"

namespace trireme {
namespace {

ComputeDevice chosen_device(Runtime& runtime, const InferenceRequest& wanted) {
  DeviceRequest request = wanted.device;
  request.tf32 = wanted.precision == "tf32";
  return choose_compute_device(runtime, request);
}

}  // namespace

PreparedInference::PreparedInference(Runtime& ranks, const InferenceRequest& wanted,
                                     const InferenceUse& use)
    : runtime(ranks),
      shape(allow_time_and_resolve(wanted)),
      device(chosen_device(runtime, wanted)),
      checkpoint(open_checkpoint_or_run(runtime.world(), wanted.checkpoint)),
      plan(make_plan(wanted, use)),
      grid(runtime, shape, place(wanted, use)),
      model(device.context, grid, checkpoint, plan) {
  runtime.set_timeout(wanted.timeout);
  const std::string fault = fault_of_weights(device.context, model.stage(), runtime.world());
  if (!fault.empty() && runtime.rank() == 0) report_line(checkpoint.path() + ": " + fault);
}

// Collective over the world.
GridShape PreparedInference::allow_time_and_resolve(const InferenceRequest& wanted) const {
  runtime.set_timeout(wanted.timeout);
  const std::int64_t bytes = largest_checkpoint_bytes(runtime.world(), wanted.checkpoint);
  runtime.set_timeout(HangLimit(wanted.timeout).seconds_with_checkpoint(bytes));
  return with_shards(resolve_grid(wanted.grid, runtime.size()), wanted.shard);
}

InferencePlan PreparedInference::make_plan(const InferenceRequest& wanted,
                                           const InferenceUse& use) const {
  InferencePlan made(checkpoint, wanted.precision, wanted.shard, wanted.weights == "average");
  use.check(made);
  return made;
}

// Collective over the world. Returns the rank at each place of the grid.
std::vector<int> PreparedInference::place(const InferenceRequest& wanted,
                                          const InferenceUse& use) const {
  const NetworkOfJob network = read_job_network(runtime, wanted.network);
  plan_communicators(runtime, network, {});
  Config sizes = plan.training;
  sizes.batch = {.global = use.micro, .micro = use.micro};
  // How training divided gradients, and its model into chunks, is of no interest here.
  sizes.shard = {};
  sizes.grid = {};
  plan::DryRunInput dry = dry_run_input(sizes, plan.model, shape);
  dry.step.stage = plan.stage;
  dry.trains = false;
  dry.predicts = use.predicts;
  const auto forecast = check_memory_here(dry, runtime, device, [&](const FitsMemory& /*fits*/) {
    return use.micro > 1 ? "a smaller batch.micro, more grid.tensor or more grid.pipeline"
                         : "more grid.tensor or more grid.pipeline";
  });
  Placement placement =
      place_grid(runtime, wanted.order, shape, traffic_of(forecast), network.network);
  if (runtime.rank() == 0) {
    for (const std::string& remark : network.remarks) report_line("comm.network: " + remark);
    if (!placement.why.empty()) report_line(placement.why);
  }
  return std::move(placement.order);
}

}  // namespace trireme
