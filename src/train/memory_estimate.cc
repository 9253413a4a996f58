#include "trireme/train/memory_estimate.h"

#include <algorithm>
#include <cmath>

#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/schedule.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/train/setup.h"

namespace trireme {
namespace {

// The sizes of the formula in the header.
struct Sizes {
  double rows, outside_rows, width, up, hidden, kv_width, tensor, context, bytes;
  nn::LossSizes loss;

  Sizes(const Config& config, const models::GptConfig& m, const GridShape& grid,
        std::int64_t gpu_memory)
      : rows(static_cast<double>(config.batch.micro) * static_cast<double>(m.context)),
        outside_rows(config.grid.sequence_parallel ? rows / grid[Axis::kTensor] : rows),
        width(static_cast<double>(m.width)),
        up(static_cast<double>(m.hidden) *
           (m.activation == nn::ActivationKind::kSwiglu ? 2.0 : 1.0)),
        hidden(static_cast<double>(m.hidden)),
        kv_width(std::max(static_cast<double>(m.width / m.heads * m.kv_heads),
                          static_cast<double>(m.width / m.heads * grid[Axis::kTensor]))),
        tensor(grid[Axis::kTensor]),
        context(static_cast<double>(m.context)),
        bytes(static_cast<double>(size_of(compute_type(config.run.precision)))),
        loss{.rows = config.batch.micro * m.context,
             .classes = nn::vocabulary_rows_in_memory(m.vocabulary, grid[Axis::kTensor]),
             .compute = compute_type(config.run.precision),
             .gpu_memory = gpu_memory} {}
};

struct StageLoad {
  double elements = 0.0;     // in parameters
  double activations = 0.0;  // bytes per micro-batch
};

void add_layer(StageLoad& load, const Sizes& z, const Config& config, const models::GptConfig& m) {
  const double matrices = z.width * (2 * z.width + 2 * z.kv_width) + z.width * (z.up + z.hidden);
  const double biases = m.bias ? (z.width + 2 * z.kv_width + z.up) / z.tensor + 2 * z.width : 0.0;
  load.elements += matrices / z.tensor + biases + 4 * z.width;
  const double norm_rows = config.grid.sequence_parallel ? z.rows : z.outside_rows;
  load.activations += z.bytes * (2 * (z.outside_rows + norm_rows) * z.width +
                                 z.rows * (2 * z.width + 2 * z.kv_width) / z.tensor +
                                 z.rows * (z.up + z.hidden) / z.tensor);
}

void add_ends(StageLoad& load, const Sizes& z, const models::GptConfig& m, bool first, bool last) {
  const double table = static_cast<double>(z.loss.classes) * z.width;
  if (first) {
    load.elements += table;
    if (m.positions == nn::PositionKind::kLearned) load.elements += z.context * z.width;
    load.activations += z.bytes * z.outside_rows * z.width;
  }
  if (last) {
    if (!first || !m.tied) load.elements += table;
    load.elements += 2 * z.width;
    load.activations += z.bytes * (z.outside_rows + 2 * z.rows) * z.width;
  }
}

double working_bytes(const Sizes& z, const Config& config, bool last) {
  const double gathered = config.grid.sequence_parallel ? 2 : 0;
  double bytes = z.bytes * z.rows * ((3 + gathered) * z.width + z.up / z.tensor);
  return last ? bytes + static_cast<double>(nn::loss_slice_bytes(z.loss)) : bytes;
}

std::vector<int> live_micro_batches(const Config& config, const GridShape& grid) {
  const int all = config.batch.global / config.batch.micro, replicas = grid.extent(kDataAxes);
  int most = 1;
  for (int replica = 0; replica < replicas; ++replica) {
    most = std::max(most, parallel::share_of(all, replicas, replica).count);
  }
  return parallel::live_micro_batches(config.grid.schedule, grid[Axis::kPipeline], most);
}

}  // namespace

std::int64_t mib_of(double bytes) {
  constexpr double kMib = 1048576.0, kMost = 1e15;
  return static_cast<std::int64_t>(std::min(std::ceil(bytes / kMib), kMost));
}

MemoryEstimate estimate_memory(const Config& config, const models::GptConfig& model,
                               const GridShape& grid, std::int64_t gpu_memory) {
  const Sizes sizes(config, model, grid, gpu_memory);
  std::vector<double> costs;
  for (const nn::BlockPlan& block : models::gpt_plan(model).blocks) costs.push_back(block.cost);
  const std::vector<int> bounds = parallel::partition_blocks(costs, grid[Axis::kPipeline]);
  const std::vector<int> live = live_micro_batches(config, grid);
  const int head = static_cast<int>(costs.size()) - 1;
  MemoryEstimate most;
  for (std::size_t stage = 0; stage + 1 < bounds.size(); ++stage) {
    const bool first = stage == 0, last = bounds[stage + 1] == head + 1;
    StageLoad load;
    for (int block = std::max(bounds[stage], 1); block < std::min(bounds[stage + 1], head); ++block)
      add_layer(load, sizes, config, model);
    add_ends(load, sizes, model, first, last);
    MemoryEstimate here;
    here.parameters = load.elements * (sizes.bytes == 2.0 ? 6.0 : 4.0);
    const bool rounded = config.comm.reduce == "bf16" && grid.extent(kDataAxes) > 1;
    here.gradients = load.elements * (rounded ? 6.0 : 4.0);
    here.optimizer = load.elements * (config.optim.name == "adamw"  ? 8.0
                                      : config.optim.momentum > 0.0 ? 4.0
                                                                    : 0.0);
    here.activations = load.activations * live[stage] + working_bytes(sizes, config, last);
    if (here.total() > most.total()) most = here;
  }
  return most;
}

}  // namespace trireme
