// What the keys nccl.* tell NCCL.
#pragma once

#include <string>

#include "trireme/comm/nccl_tuning.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"

namespace trireme {

// Collective over the world; call it where NCCL carries tensors. With a tuner, rank 0 reads the
// file of its table and all ranks get its text. Throws ConfigError if that file cannot be read or
// is damaged. If this program's plugin is missing on a rank, Runtime::use_device says so, and NCCL
// chooses itself.
NcclTuning nccl_tuning(Runtime& runtime, const Config::Nccl& keys);

}  // namespace trireme
