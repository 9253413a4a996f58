// The tokenizer of a trained model of texts.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/inference/inference.h"
#include "trireme/io/tokenizer.h"

namespace trireme::cli {

struct ModelTokenizer {
  TokenizerPtr tokenizer;
  std::string origin;  // the shard, for tasks::check_tokenizer, which the caller owes
};

// Collective over comm. Reads the tokenizer from the data that the model was trained on, or from
// `shard` if that is not empty, without their tokens. Throws ConfigError where none is known, and
// the errors of TokenDataset::open.
ModelTokenizer open_model_tokenizer(Communicator& comm, const InferenceModel& model,
                                    const std::string& shard);

}  // namespace trireme::cli
