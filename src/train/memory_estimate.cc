#include "trireme/train/memory_estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

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
  double elements = 0.0;            // in parameters
  std::vector<double> activations;  // of each block, bytes per micro-batch
};

// What recompute.mode selective does not keep of a layer.
bool remakes_norms(const Sizes& z, const Config& config) {
  const bool gathered = config.grid.sequence_parallel && z.tensor > 1;
  return config.recompute.mode == "selective" && !gathered;
}
bool remakes_activation(const Sizes& z, const Config& config, const models::GptConfig& m) {
  const bool by_cublaslt = z.loss.gpu_memory > 0 && m.activation == nn::ActivationKind::kGelu;
  return config.recompute.mode == "selective" && !by_cublaslt;
}

void add_layer(StageLoad& load, const Sizes& z, const Config& config, const models::GptConfig& m) {
  const double matrices = z.width * (2 * z.width + 2 * z.kv_width) + z.width * (z.up + z.hidden);
  const double biases = m.bias ? (z.width + 2 * z.kv_width + z.up) / z.tensor + 2 * z.width : 0.0;
  load.elements += matrices / z.tensor + biases + 4 * z.width;
  const double norm_rows = config.grid.sequence_parallel ? z.rows : z.outside_rows;
  const double active = remakes_activation(z, config, m) ? 0.0 : z.hidden;
  load.activations.push_back(
      z.bytes *
      (2 * (z.outside_rows + (remakes_norms(z, config) ? 0.0 : norm_rows)) * z.width +
       z.rows * (2 * z.width + 2 * z.kv_width) / z.tensor + z.rows * (z.up + active) / z.tensor));
}

double table_elements(const Sizes& z) {
  return static_cast<double>(z.loss.classes) * z.width;
}

void add_embedding(StageLoad& load, const Sizes& z, const models::GptConfig& m) {
  load.elements += table_elements(z);
  if (m.positions == nn::PositionKind::kLearned) load.elements += z.context * z.width;
  load.activations.push_back(z.bytes * z.outside_rows * z.width);
}

void add_head(StageLoad& load, const Sizes& z, const Config& config, bool shares_table) {
  load.elements += 2 * z.width + (shares_table ? 0.0 : table_elements(z));
  const double rows = remakes_norms(z, config) ? z.rows : 2 * z.rows;
  load.activations.push_back(z.bytes * (z.outside_rows + rows) * z.width);
}

double working_bytes(const Sizes& z, const Config& config, bool layers, bool head) {
  const double gathered = config.grid.sequence_parallel ? 2 : 0;
  const double slice = head ? static_cast<double>(nn::loss_slice_bytes(z.loss)) : 0.0;
  // The weight gradient that reads the activation's output has it made again. Where rows are
  // gathered, the most is held elsewhere.
  const double again = remakes_norms(z, config) ? z.hidden / z.tensor : 0.0;
  return slice +
         (layers ? z.bytes * z.rows * ((3 + gathered) * z.width + z.up / z.tensor + again) : 0.0);
}

// The activations of `live` micro-batches, and what the backward of one of them needs.
double activation_bytes(const StageLoad& load, const Sizes& z, const Config& config, bool first,
                        bool last, int live) {
  const std::vector<double>& blocks = load.activations;
  const auto sum = [&](std::size_t begin, std::size_t end) {
    return std::accumulate(&blocks[0] + begin, &blocks[0] + end, 0.0);
  };
  if (config.recompute.mode != "full") {
    return live * sum(0, blocks.size()) + working_bytes(z, config, true, last);
  }
  const auto every = static_cast<std::size_t>(config.recompute.every);
  const double input = z.bytes * z.outside_rows * z.width;
  double kept = 0.0, most = 0.0;
  for (std::size_t i = 0; i < blocks.size(); i += every) {
    const std::size_t end = std::min(i + every, blocks.size());
    const bool head = last && end == blocks.size();
    const bool layers = end - i > (head ? 1u : 0u) + (first && i == 0 ? 1u : 0u);
    if (i > 0 || !first) kept += input;
    // The output of the run is the input of the next, or is not kept.
    most = std::max(most, sum(i, end) - input + working_bytes(z, config, layers, head));
  }
  return live * kept + most;
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
    for (int block = bounds[stage]; block < bounds[stage + 1]; ++block) {
      if (block == 0) {
        add_embedding(load, sizes, model);
      } else if (block == head) {
        add_head(load, sizes, config, first && model.tied);
      } else {
        add_layer(load, sizes, config, model);
      }
    }
    MemoryEstimate here;
    here.parameters = load.elements * (sizes.bytes == 2.0 ? 6.0 : 4.0);
    const bool rounded = config.comm.reduce == "bf16" && grid.extent(kDataAxes) > 1;
    here.gradients = load.elements * (rounded ? 6.0 : 4.0);
    here.optimizer = load.elements * (config.optim.name == "adamw"  ? 8.0
                                      : config.optim.momentum > 0.0 ? 4.0
                                                                    : 0.0);
    here.activations = activation_bytes(load, sizes, config, first, last, live[stage]);
    if (here.total() > most.total()) most = here;
  }
  return most;
}

}  // namespace trireme
