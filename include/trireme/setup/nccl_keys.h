// What the keys nccl.* tell NCCL.
#pragma once

#include <string>

#include "trireme/comm/nccl_tuning.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"

namespace trireme {

// Collective over the world; call it where NCCL carries tensors. With nccl.tuner network, tables
// are made for the network that comm.network gives, `network` being its value; if it gives none and
// there are several nodes, rank 0 says so and there is no tuner. For a file rank 0 reads it and all
// ranks get its text. Throws ConfigError if the file cannot be read or is damaged. If its rates
// were measured on other nodes, rank 0 says so and there is no tuner. If this program's plugin is
// missing on a rank, Runtime::use_device says so.
NcclTuning nccl_tuning(Runtime& runtime, const Config::Nccl& keys, const std::string& network);

}  // namespace trireme
