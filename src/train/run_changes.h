// What has changed in a run since a checkpoint was written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/tasks/task.h"

namespace trireme {

// A text that identifies something of a run's data and names no path.
struct DataAttribute {
  tasks::DataMark mark;
  OnChange on_change;
};
// Returns how the data are encoded, and the contents of the training data and of the held-out data.
// Checkpoints carry them. `validation` may be null.
std::vector<DataAttribute> describe_data(const tasks::TaskData& train,
                                         const tasks::TaskData* validation);

// Returns the settings and data that differ from the checkpoint's. Values that the checkpoint did
// not record are not compared. `data` is the result of describe_data.
std::vector<ChangedSetting> changes_since(const Checkpoint& checkpoint, const Config& config,
                                          const std::vector<DataAttribute>& data);
// The same of the model's settings alone.
std::vector<ChangedSetting> changed_model(const Checkpoint& checkpoint, const Config& config);

// Tells how a run goes on with its own settings.
std::string words_on_own_settings(const Config& config);

// Throws ConfigError, with the whole list, if a change makes it a different run and
// run.accept_changes does not allow that.
void check_changes(const std::vector<ChangedSetting>& changes, const Checkpoint& checkpoint,
                   const Config& config);

// Returns "optim.lr was 0.001, is 0.002; ..." for the changes of these kinds; empty if there are
// none.
std::string list_of(const std::vector<ChangedSetting>& changes, const std::vector<OnChange>& kinds);

// Returns the attributes of a checkpoint, with "batch_runs" also where it is of a version that did
// not record it: that version had as many runs as data replicas unless batch.runs was given.
// `origin` names the checkpoint in errors.
std::map<std::string, std::string> choices_before(const CheckpointInfo& info,
                                                  const std::string& origin);

}  // namespace trireme
