// How well a trained model predicts a text: `trireme eval`.
#pragma once

#include <cstdint>

#include "trireme/io/dataset.h"
#include "trireme/train/inference.h"

namespace trireme {

struct EvaluationReport {
  double loss = 0.0;           // mean -ln p of a token
  double perplexity = 0.0;     // exp(loss)
  double bits_per_byte = 0.0;  // sum of -log2 p over all tokens / bytes of the original text
  std::int64_t tokens = 0;     // predicted: all tokens of the data, ends of text included
  std::int64_t bytes = 0;
  double seconds = 0.0;

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

// `loss_sum` is the sum over `tokens` tokens, in nats; the tokens encode `bytes` bytes of text.
EvaluationReport evaluation_report(double loss_sum, std::int64_t tokens, std::int64_t bytes);

// Collective over comm. Opens the data in windows of the model's context, without overlap. Without
// paths it opens the held-out data that the model was trained with. Throws DataError and
// ConfigError as TokenDataset::open does, ConfigError where there are neither paths nor held-out
// data, and DataError as InferenceModel::check_tokenizer does.
std::shared_ptr<const TokenDataset> open_evaluation_data(Communicator& comm,
                                                         const InferenceModel& model,
                                                         const std::vector<WeightedPath>& paths);

// Collective over the grid. Evaluates `data` in sequential order on the grid of the stage, with
// `micro` windows per micro-batch. The result is the same on every rank.
EvaluationReport evaluate_on(ops::Context& ctx, const parallel::Stage& stage,
                             const std::shared_ptr<const TokenDataset>& data, std::int64_t micro,
                             bool mask_documents);

}  // namespace trireme
