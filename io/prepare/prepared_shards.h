// The files of a prepare: what is trained on is there only while the held-out data are those that
// it lacks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/files/set_folder.h"

namespace trireme {

inline constexpr const char* kTrainShard = "train.h5";
inline constexpr const char* kValidationShard = "validation.h5";

// "train.h5", or of several "train-00001-of-00003.h5".
std::string train_shard_name(std::int64_t shard, std::int64_t shards);
std::vector<std::string> train_shard_names(std::int64_t shards);

// Gives the finished files their names. Those of an earlier prepare, of other data, go.
void name_shards(SetFolder& folder, std::int64_t shards, bool validation);

}  // namespace trireme
