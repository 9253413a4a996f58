// What has changed in a run since a checkpoint was written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"

namespace trireme {

// Returns texts that identify the run's data and name no path: the tokenizer (see
// tokenizer_checksum), and the contents of the training data and of the held-out data. Checkpoints
// carry them. `validation` may be null.
std::map<std::string, std::string> describe_data(const TokenDataset& train,
                                                 const TokenDataset* validation);

// Returns the settings and data that differ from the checkpoint's. Values that the checkpoint did
// not record are not compared. `data` is the result of describe_data.
std::vector<ChangedSetting> changes_since(const Checkpoint& checkpoint, const Config& config,
                                          const std::map<std::string, std::string>& data);

// Throws ConfigError, with the whole list, if a change makes it a different run and
// run.accept_changes does not allow that.
void check_changes(const std::vector<ChangedSetting>& changes, const Checkpoint& checkpoint,
                   const Config& config);

// Returns "optim.lr was 0.001, is 0.002; ..." for the changes of these kinds; empty if there are
// none.
std::string list_of(const std::vector<ChangedSetting>& changes, const std::vector<OnChange>& kinds);

}  // namespace trireme
