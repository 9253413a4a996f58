// Micro-batches of token data, and the evaluation over them.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/io/dataset.h"
#include "trireme/parallel/pipeline_executor.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {

// Returns samples [begin, begin + micro) of a batch of data as a micro-batch. Samples past the end
// of `data` are padding with masked targets.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training);

// Collective over the grid. Returns the sum of the losses over all of `data`, in windows without
// overlap, on any grid. `limit` bounds the number of micro-batches of the whole evaluation
// (nullopt: all).
parallel::EvaluationResult evaluate(parallel::PipelineExecutor& executor, const TokenDataset& data,
                                    std::int64_t micro, bool mask_documents,
                                    std::optional<std::int64_t> limit);

}  // namespace trireme
