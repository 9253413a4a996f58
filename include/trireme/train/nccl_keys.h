// What the keys nccl.* tell NCCL.
#pragma once

#include <string>

#include "trireme/comm/nccl_tuning.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"

namespace trireme {

// Collective over the world; call it where NCCL carries tensors. For nccl.tuner rank 0 reads the
// file and all ranks get its text. Throws ConfigError if the file cannot be read or is damaged. If
// its rates were measured on other nodes, rank 0 says so and there is no tuner. If this program's
// plugin is missing on a rank, Runtime::use_device says so.
NcclTuning nccl_tuning(Runtime& runtime, const Config::Nccl& keys);

}  // namespace trireme
