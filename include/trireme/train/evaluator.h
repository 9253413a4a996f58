// How well a trained model predicts a text: `trireme eval`.
#pragma once

#include <cstdint>

#include "trireme/io/dataset.h"
#include "trireme/train/inference.h"

namespace trireme {

struct EvaluationReport {
  double loss = 0.0;           // mean -ln p of a token
  double perplexity = 0.0;     // exp(loss)
  double bits_per_byte = 0.0;  // sum of -log2 p over all tokens, by the text's original bytes
  std::int64_t tokens = 0;     // predicted: every one of the data, ends of text included
  std::int64_t bytes = 0;
  double seconds = 0.0;

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

// `loss_sum` in nats over `tokens` tokens, behind which stand `bytes` bytes of text.
EvaluationReport evaluation_report(double loss_sum, std::int64_t tokens, std::int64_t bytes);

// The data in the windows of the model's context, without overlap; no paths: the held-out data that
// the model was trained with. Collective over comm. Throws
// DataError, ConfigError as TokenDataset::open does, and as InferenceModel::check_tokenizer does.
std::shared_ptr<const TokenDataset> open_evaluation_data(Communicator& comm,
                                                         const InferenceModel& model,
                                                         const std::vector<WeightedPath>& paths);

// `data` in sequential order, at `micro` windows a micro-batch, on the grid of the stage. The same
// on every rank. Collective over the grid.
EvaluationReport evaluate_on(ops::Context& ctx, const parallel::Stage& stage,
                             const TokenDataset& data, std::int64_t micro, bool mask_documents);

}  // namespace trireme
