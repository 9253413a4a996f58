// The checkpoints of a run: those that it resumes from and those that it writes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"
#include "trireme/io/run_folder.h"
#include "trireme/ops/attention.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/setup/communication.h"
#include "trireme/setup/compute_device.h"
#include "trireme/tasks/task.h"

#include "train/chosen_products.h"
#include "train/island_meetings.h"
#include "train/run_changes.h"
#include "train/run_tokenizer.h"
#include "train/settled_rate.h"

namespace trireme {

class RunCheckpoints {
 public:
  // The parts of a run that a checkpoint is made of, or that its bits depend on. All must outlive
  // this object. The configuration has every value of the model written out.
  struct Run {
    Runtime& runtime;
    const Config& config;
    ComputeDevice& device;
    const ProcessGrid& grid;
    parallel::TrainerStep& step;
    IslandMeetings& meetings;
    const tasks::TaskData& data;
    const tasks::TaskData* validation;  // null: there is none
    RunFolder& folder;
    const ops::AttentionChoice& attention;
    const ChosenProducts& products;
    const NetworkOfJob& network;                         // for which the communicators are planned
    const std::vector<optim::LearningRatePoint>& rates;  // RunPlan::rates
    const SettledRate& settled_rate;
    bool promise_broken = false;  // BitsOfStart::promise_broken
  };
  explicit RunCheckpoints(const Run& run)
      : run_(run),
        tokenizer_({.runtime = run.runtime,
                    .config = run.config,
                    .data = run.data,
                    .folder = run.folder}) {}

  struct Position {
    std::int64_t step = 0, samples = 0;  // steps done, samples consumed
    bool continues = true;               // with the folder's branch; false: began a new one
    std::string changes = {};            // since the checkpoint, that affect results
    // Whether the checkpoint's evaluations of some samples (eval.batches) read the beginning of the
    // held-out data, as earlier versions did.
    bool older_evaluations = false;
    // The first of the steps up to this one that were skipped; nothing where this one was not.
    std::optional<std::int64_t> skipped_since = {};
    // Those of them that tell of divergence: the search for a loss scale expects the others.
    std::int64_t skipped_in_a_row = 0;

    std::int64_t skipped() const { return skipped_since ? step - *skipped_since + 1 : 0; }
    // "the last 3 steps were skipped: their gradients were not finite"; empty if none was.
    std::string words_on_skipped() const;
  };
  // Collective over the world. Restores the checkpoint that run.resume asks for. If there is none,
  // takes the weights and states of run.start_from, or draws the initial values. Files that are not
  // ancestors of that point leave the folder's history. Rank 0 prints what was done, and what has
  // changed since the checkpoint. Throws ConfigError if the checkpoint is of another run and
  // run.accept_changes is false, CheckpointError if its model has other shapes or weights are NaN
  // or infinite, and RunFolderError.
  Position resume();

  // Collective over the world. Writes a checkpoint and returns the file's path. While steps are
  // skipped, the newest one from before them stays, whatever checkpoint.keep is.
  std::string save(const Position& position);
  // Collective over the world. Writes an outer state of members to a file of its own, as a
  // checkpoint of these tensors.
  void save_outer(const std::string& path, const Position& position,
                  std::span<const TensorSlice> slices) const;
  // Throws ConfigError where a checkpoint has other settings that change results, or other data.
  void check_same(const Checkpoint& checkpoint) const;
  // Says from where a run that diverged can go on: "go on from step-00000010.h5 (--run.resume PATH)
  // with a lower optim.lr". The same on all ranks.
  std::string words_on_way_back() const;

 private:
  Position restore(const Checkpoint& of_all);
  void erase_what_imports_do_not_know(std::vector<ChangedSetting>& changes) const;
  void begin();
  void take_weights(const Checkpoint& checkpoint);
  std::string newest_before(const std::string& checkpoint, std::int64_t step) const;
  void check_finite(const Checkpoint& checkpoint, bool goes_on) const;
  void check_fit(const Checkpoint& checkpoint, std::span<const TensorSlice> slices,
                 const std::vector<std::string>& head) const;
  void check_data(const Checkpoint& checkpoint, const models::Model& model) const;
  void check_all_taken(const Checkpoint& checkpoint, std::span<const TensorSlice> taken,
                       const std::vector<std::string>& fresh) const;
  void check_parameters(const Checkpoint& checkpoint) const;
  void refuse_other_model(const Checkpoint& checkpoint) const;
  std::set<std::string> take_out_missing_averages(const Checkpoint& checkpoint,
                                                  std::vector<TensorSlice>& slices) const;
  std::string words_on_averages(const Checkpoint& checkpoint) const;
  bool keeps_bits(const Checkpoint& checkpoint) const;
  std::string restore_kept_gradients(const Checkpoint& checkpoint);
  static bool evaluated_beginning(const Checkpoint& checkpoint);
  void note_groups_of_samples(const Checkpoint& checkpoint,
                              std::vector<ChangedSetting>& changes) const;
  std::string words_on_leap(const Checkpoint& checkpoint) const;
  std::string words_on_arithmetic(const Checkpoint& checkpoint) const;
  void say_resumed(const Checkpoint& checkpoint, const std::vector<ChangedSetting>& changes) const;
  std::vector<std::string> rounding_since(const Checkpoint& checkpoint,
                                          std::vector<ChangedSetting> changes) const;
  std::map<std::string, std::string> recorded_choices() const;
  std::map<std::string, std::string> recorded_plans() const;
  std::vector<DataAttribute> recorded_contents() const;
  CheckpointInfo info_of(const Position& position) const;
  bool scales_dynamically() const;

  Run run_;
  // The frozen parameters that have other values on this rank than those that they were given.
  std::set<std::string> rounded_;
  // What this start took its weights from.
  std::string foreign_format_;
  std::int64_t foreign_context_ = 0;
  RunTokenizer tokenizer_;
  // The newest checkpoint that was written, or gone on from, when the last step had changed the
  // weights; empty: there is none.
  std::string before_skipped_;
};

}  // namespace trireme
