// What NCCL's communicators take of a GPU: an estimate, beside the tensors that dry runs count.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/dry_rank.h"

namespace trireme::plan {

// What the estimate knows of the run. The rest it assumes: NVLink within a node, and GPUDirect
// between nodes.
struct NcclSetting {
  int ranks_of_node = 8;                          // neighbours in the world
  std::optional<int> min_channels, max_channels;  // nccl.min_channels, nccl.max_channels
  std::optional<int> channels_per_peer;           // nccl.channels_per_peer
};

struct NcclMemory {
  int communicators = 0;  // of several ranks, which carry tensors of GPUs
  int channels = 0;       // of each
  int ranks_of_node = 0;
  std::int64_t bytes = 0;  // on the rank's GPU
};

// `traffic` is all that the rank has sent so far. A channel has a connection for each rank that it
// receives from, with buffers of the three protocols, and one for each that it sends to. They are
// counted as NCCL 2.28 allocates them (src/init.cc: the sizes, src/transport/p2p.cc and net.cc: who
// allocates which), with rings for collectives, trees besides for sums of more than two ranks, and
// the channels of messages for each peer. NCCL connects what it uses, and may use less: where the
// switch adds up, 256 MiB take the place of trees.
NcclMemory nccl_memory(std::span<const DryTraffic> traffic, int rank, const NcclSetting& setting);

// "NCCL takes about 1234 MiB of a GPU besides (an estimate: ...)".
std::string words_on(const NcclMemory& memory);

}  // namespace trireme::plan
