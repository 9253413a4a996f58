#include "trireme/train/step_traffic.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/train/memory_estimate.h"
#include "trireme/train/setup.h"

namespace trireme {
namespace {

int most_micro_batches(const Config& config, const GridShape& grid) {
  const int all = config.batch.global / config.batch.micro;
  const int replicas = grid.extent(kDataAxes);
  return parallel::share_of(all, replicas, replicas - 1).count;  // the last share is largest
}

// Whether a block's forward runs twice. That of the run of blocks that ends in the loss does not.
bool recomputes(const Config& config, const std::vector<int>& bounds, std::size_t stage, int block,
                int head) {
  if (config.recompute.mode != "full") return false;
  const int begin = bounds[stage], end = bounds[stage + 1];
  const int last_run = begin + (end - begin - 1) / config.recompute.every * config.recompute.every;
  return end <= head || block < last_run;
}

}  // namespace

GridTraffic estimate_traffic(const Config& config, const models::GptConfig& model,
                             const GridShape& grid) {
  GridTraffic traffic;
  if (grid.extent(kDataAxes) > 1) {
    traffic.data = estimate_memory(config, model, grid, 0).gradients;
    if (config.comm.reduce == "bf16") traffic.data /= 3;  // 6 bytes in memory, of which 2 travel
  }
  const double rows = static_cast<double>(config.batch.micro) * static_cast<double>(model.context);
  const double micro_batches = most_micro_batches(config, grid);
  // The size of a micro-batch's rows between two layers.
  const double bytes = rows * static_cast<double>(model.width) *
                       static_cast<double>(size_of(compute_type(config.run.precision)));
  std::vector<double> costs;
  for (const nn::BlockPlan& block : models::gpt_plan(model).blocks) costs.push_back(block.cost);
  const int tensor = grid[Axis::kTensor];
  const std::vector<int> bounds = parallel::partition_blocks(costs, grid[Axis::kPipeline]);
  const int head = static_cast<int>(costs.size()) - 1;
  for (std::size_t stage = 0; stage + 1 < bounds.size() && tensor > 1; ++stage) {
    double sums = 0.0;
    for (int block = bounds[stage]; block < bounds[stage + 1]; ++block) {
      const int forward = block == 0 ? 1 : block == head ? 0 : 2;
      const int backward = block == 0 ? 0 : block == head ? 1 : 2;
      const int forwards = recomputes(config, bounds, stage, block, head) ? 2 : 1;
      sums += bytes * (forwards * forward + backward);
    }
    if (bounds[stage + 1] > head) sums += 3 * sizeof(float) * rows;
    traffic.tensor = std::max(traffic.tensor, micro_batches * sums);
  }
  if (grid[Axis::kPipeline] > 1) {
    const bool shares_rows = config.grid.sequence_parallel;
    traffic.pipeline = micro_batches * bytes / (shares_rows ? tensor : 1);
    if (model.tied) {
      traffic.ends = sizeof(float) * static_cast<double>(model.width) *
                     static_cast<double>(nn::vocabulary_rows_in_memory(model.vocabulary, tensor));
    }
  }
  return traffic;
}

GridTraffic traffic_of(const Trace& trace) {
  GridTraffic traffic;
  std::map<int, double> sent;  // by peer
  for (const Operation& operation : trace.operations) {
    const auto lane = trace.lanes.find(operation.lane);
    if (lane == trace.lanes.end()) continue;
    const std::string& name = lane->second;  // with NCCL " on GPUs" follows
    auto bytes = static_cast<double>(operation.bytes);
    if (operation.name == "reduce_scatter" || operation.name == "all_gather") bytes /= 2;
    if (name.starts_with("data")) traffic.data += bytes;
    if (name.starts_with("tensor")) traffic.tensor += bytes;
    if (name.starts_with("tied")) traffic.ends += bytes;
    if (name.starts_with("pipeline") && operation.sends) {
      double& to_peer = sent[operation.peer] += bytes;
      traffic.pipeline = std::max(traffic.pipeline, to_peer);
    }
  }
  return traffic;
}

}  // namespace trireme
