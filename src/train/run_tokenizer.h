// The tokenizer of a run's data: its files go from checkpoint to checkpoint, and lie in the run's
// folder `tokenizer` for other programs.
#pragma once

#include <optional>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_folder.h"
#include "trireme/io/tokenizer_files.h"
#include "trireme/tasks/task.h"

namespace trireme {

class RunTokenizer {
 public:
  // All must outlive this object.
  struct Run {
    Runtime& runtime;
    const Config& config;
    const tasks::TaskData& data;
    RunFolder& folder;
  };
  explicit RunTokenizer(const Run& run) : run_(run) {}

  // Collective over the world. Files that came with the weights stay with a run on the same tokens.
  void take_brought_files(const Checkpoint& checkpoint);
  // Collective over the world: the folder `tokenizer` of a run that goes on from a checkpoint.
  void write_folder(const std::optional<Checkpoint>& checkpoint);
  // Adds it to what a checkpoint will hold, on rank 0.
  void add_to(CheckpointInfo& info, CheckpointTexts& texts) const;

 private:
  Run run_;
  TokenizerFiles files_;  // what was brought is known on rank 0
};

}  // namespace trireme
