// The tokenizer of a trained model of texts.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/inference/inference.h"
#include "trireme/io/tokenizer.h"

namespace trireme::cli {

struct ModelTokenizer {
  TokenizerPtr tokenizer;
  std::string origin;  // the file, for tasks::check_tokenizer, which the caller owes
};

// Collective over comm. Takes the tokenizer of `path` if that is not empty: a shard, a folder of
// them, or what load_tokenizer takes. Else the one in the checkpoint, or, where an older checkpoint
// has none, that of the data that the model was trained on. Throws ConfigError where none is known,
// and the errors of TokenDataset::open and load_tokenizer.
ModelTokenizer open_model_tokenizer(Communicator& comm, const InferenceModel& model,
                                    const std::string& path);

}  // namespace trireme::cli
