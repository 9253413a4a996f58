// The tokenizer that a checkpoint holds (io/CHECKPOINTS.md), so that a model needs no data folder.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/tokenizer_files.h"

namespace trireme {

using CheckpointAttributes = std::map<std::string, std::string>;  // CheckpointInfo::extra

// Adds a tokenizer and its files to what a checkpoint will hold; the caller adds
// tasks::marks_of_tokens.
void add_tokenizer(const TokenizerFiles& files, CheckpointInfo& info, CheckpointTexts& texts);

// Reads what a checkpoint holds, on this process alone. Throws CheckpointError.
TokenizerFiles read_tokenizer_files(const std::string& path,
                                    const CheckpointAttributes& attributes);

// The part of it that came with weights.
std::map<std::string, std::string> brought_files(const std::string& path);

// Collective over comm. The tokenizer that a checkpoint holds; null where it holds none. Throws
// CheckpointError, the same on all ranks.
TokenizerPtr checkpoint_tokenizer(Communicator& comm, const std::string& path,
                                  const CheckpointAttributes& attributes);

// Collective over comm. Makes on every rank the tokenizer that `load` returns on rank 0.
TokenizerPtr tokenizer_of_first(Communicator& comm, const std::function<TokenizerPtr()>& load);

}  // namespace trireme
