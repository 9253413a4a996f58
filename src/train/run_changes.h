// What of a run is not what it was when a checkpoint was written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"

namespace trireme {

// What the run's data are, as texts that a checkpoint carries and that name no path: the tokenizer
// (see tokenizer_checksum), and the contents of the training data and of the held-out data.
// `validation` may be null.
std::map<std::string, std::string> describe_data(const TokenDataset& train,
                                                 const TokenDataset* validation);

// Settings and data that differ from the checkpoint's. What it did not record is not compared.
// `data`: of describe_data.
std::vector<ChangedSetting> changes_since(const Checkpoint& checkpoint, const Config& config,
                                          const std::map<std::string, std::string>& data);

// Throws ConfigError, with the whole list, where a change makes another run of it and
// run.accept_changes does not allow that.
void check_changes(const std::vector<ChangedSetting>& changes, const Checkpoint& checkpoint,
                   const Config& config);

// "optim.lr was 0.001, is 0.002; ..." of the changes of these kinds; empty where there are none.
std::string list_of(const std::vector<ChangedSetting>& changes, const std::vector<OnChange>& kinds);

}  // namespace trireme
