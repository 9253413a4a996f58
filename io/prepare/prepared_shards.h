// The files of a prepare: train.h5 is there only while the held-out data are those that it lacks.
#pragma once

#include "io/files/set_folder.h"

namespace trireme {

inline constexpr const char* kTrainShard = "train.h5";
inline constexpr const char* kValidationShard = "validation.h5";

inline void name_shards(const SetFolder& folder, bool validation) {
  if (validation) {
    folder.give_names({kValidationShard, kTrainShard}, {});
  } else {
    folder.give_names({kTrainShard}, {kValidationShard});  // an older one is of other data
  }
}

}  // namespace trireme
