// The checkpoints of a run: what it goes on from, and what it leaves behind.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"
#include "trireme/io/run_folder.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/train/compute_device.h"

namespace trireme {

class RunCheckpoints {
 public:
  // The parts of a run that a checkpoint is made of, or that decide its bits; all outlive this
  // object. The configuration has every value of the model written out.
  struct Run {
    Runtime& runtime;
    const Config& config;
    ComputeDevice& device;
    const ProcessGrid& grid;
    parallel::TrainerStep& step;
    const TokenDataset& data;
    const TokenDataset* validation;  // null: there is none
    RunFolder& folder;
  };
  explicit RunCheckpoints(const Run& run) : run_(run) {}

  struct Position {
    std::int64_t step = 0, samples = 0;  // done and consumed
    bool continues = true;               // with what the folder holds; else a branch has begun
    std::string changes = {};            // that change results, since the checkpoint: a list
  };
  // Collective over the world. Brings back what run.resume says, or draws the initial values where
  // there is nothing to go on from; what is no ancestor of that point leaves the folder's history.
  // Rank 0 says what is done, and what has changed since. Throws ConfigError where the checkpoint
  // is of another run and run.accept_changes is false, CheckpointError where it is of a model of
  // other shapes, RunFolderError.
  Position resume();

  // Returns the file's path. Collective over the world.
  std::string save(const Position& position);

 private:
  Position restore(const Checkpoint& checkpoint);
  void check_parameters(const Checkpoint& checkpoint) const;
  void say_resumed(const Checkpoint& checkpoint, const std::vector<ChangedSetting>& changes) const;
  std::map<std::string, std::string> recorded_choices() const;
  std::string attention_library() const;
  bool scales_dynamically() const;

  Run run_;
};

}  // namespace trireme
