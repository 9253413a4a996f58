#include "trireme/setup/dry_run_input.h"

#include <utility>

#include "trireme/config/optimizer_config.h"
#include "trireme/setup/communication.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/step_setup.h"
#include "trireme/tasks/task.h"

namespace trireme {

plan::DryRunInput dry_run_input(const Config& config, const models::Model& model,
                                const GridShape& grid, int threads, std::int64_t gpu_bytes) {
  const tasks::Task& task = tasks::task_of(model.request);
  const tasks::DataRequest data{.paths = {},
                                .sample = models::sample_shape(model.request),
                                .masks_documents = config.data.mask_documents,
                                .mask_share = config.data.mask_share,
                                .threads = config.data.threads};
  parallel::StepOptions step = step_options(config, model.plan, grid);
  step.work = largest_work(config, step.work);
  return {.model = model.plan,
          .step = std::move(step),
          .grid = grid,
          .islands = config.grid.islands,
          .meeting = meeting_rule(config, model.plan),
          .micro = config.batch.micro,
          .recomputed_steps = recomputed_steps(config, model.plan),
          .make_batch =
              [&task, data](ops::Context& ctx, std::int64_t micro, std::int64_t,
                            const plan::BatchParts& parts) {
                return task.blank_batch(ctx, data, micro,
                                        {.inputs = parts.inputs, .targets = parts.targets});
              },
          .read_ahead = [&task, data](int count) { return task.most_read_ahead(data, count); },
          .device = dry_device(config, threads, gpu_bytes),
          .keeps_order = algorithm_table(config.comm).keeps_order()};
}

plan::DryDevice dry_device(const Config& config, int threads, std::int64_t gpu_bytes) {
  return {.threads = config.run.threads.value_or(threads),
          .gpu_memory = gpu_bytes,
          .nccl = gpu_bytes > 0 && config.comm.backend != "mpi",
          .nccl_setting = {.min_channels = config.nccl.min_channels,
                           .max_channels = config.nccl.max_channels,
                           .channels_per_peer = config.nccl.channels_per_peer}};
}

plan::DryDevice dry_device(const ComputeDevice& device) {
  const ops::Context& ctx = device.context;
  const bool on_gpu = ctx.device.kind != DeviceKind::kCpu;
  return {.threads = ctx.threads,
          .gpu_memory = ctx.gpu_memory,
          .nccl = on_gpu && device.carrier != "mpi"};
}

}  // namespace trireme
