#include "trireme/train/dry_run_input.h"

#include "trireme/train/communication.h"
#include "trireme/train/compute_device.h"
#include "trireme/train/step_setup.h"

namespace trireme {

plan::DryRunInput dry_run_input(const Config& config, const models::Model& model,
                                const GridShape& grid, int threads) {
  return {.model = model.plan,
          .step = step_options(config, grid),
          .grid = grid,
          .micro = config.batch.micro,
          .length = model.plan.context,
          .micro_batches = config.batch.global / config.batch.micro,
          .masks_documents = config.data.mask_documents,
          .threads = config.run.threads.value_or(threads),
          .nccl = nccl_carries(device_request(config), grid.ranks()),
          .keeps_order = algorithm_table(config.comm).keeps_order()};
}

}  // namespace trireme
