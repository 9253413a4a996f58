// Dry runs of small models, for tests.
#pragma once

#include <vector>

#include "trireme/plan/dry_run.h"
#include "trireme/tasks/pictures.h"
#include "trireme/tasks/texts.h"

#include "models/resnet/resnet.h"
#include "support/small_model.h"

namespace trireme::testing {

inline nn::HostMicroBatch make_texts(ops::Context& ctx, std::int64_t micro, std::int64_t length,
                                     const plan::BatchParts& /*parts*/) {
  return make_host_texts(ctx, micro, length, false);
}

// Sets how many micro-batches a training step on the input's grid has, over all replicas.
inline void set_micro_batches(plan::DryRunInput& input, int count,
                              const parallel::BatchRuns& runs = {}) {
  input.step.work = parallel::WorkSplit::even(count, input.grid.extent(kDataAxes), runs);
}

inline plan::DryRunInput input_of(const models::GptConfig& model, const GridShape& grid,
                                  DType compute) {
  plan::DryRunInput input{.model = models::gpt_plan(model),
                          .step = {},
                          .grid = grid,
                          .micro = 2,
                          .make_batch = make_texts};
  input.step.stage.compute = compute;
  set_micro_batches(input, 8);
  return input;
}

inline plan::DryRunInput input_of_pictures(bool bottlenecks) {
  models::ResNetConfig config;
  config.image = 40;
  config.classes = 7;
  config.width = 8;
  config.bottlenecks = bottlenecks;
  plan::DryRunInput input = input_of(small_gpt(), {}, DType::kF32);
  input.model = models::resnet_plan(config);
  input.make_batch = [](ops::Context& ctx, std::int64_t micro, std::int64_t,
                        const plan::BatchParts& parts) {
    return make_host_pictures(ctx, micro, {40, 40}, parts.inputs, parts.targets);
  };
  return input;
}

inline models::GptConfig with_dropout(models::GptConfig model) {
  model.dropout = 0.1f;
  return model;
}

inline int ranks_of(const std::vector<plan::DryRunResult>& results) {
  int sum = 0;
  for (const plan::DryRunResult& result : results) sum += result.ranks;
  return sum;
}

}  // namespace trireme::testing
