// Tasks that alternate between posting messages and processing what has arrived.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives.h"
#include "messages.h"

namespace trireme {

inline std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.raw());
}

// Calls visit(peer) for all other ranks, starting with the next one, so that not all send to rank 0
// at once.
template <class Visit>
void for_each_peer(const Wire& wire, Visit visit) {
  for (int step = 1; step < wire.size; ++step) visit((wire.rank + step) % wire.size);
}

// A task of phases. Each phase posts messages and waits for them.
class PhasedTask : public Task {
 public:
  Step advance() final {
    if (!messages_.done()) return Step::kIdle;
    return next_phase() ? Step::kMoved : Step::kDone;
  }

 protected:
  explicit PhasedTask(const Wire& wire) : wire_(wire) {}

  // Called at the start, and whenever all messages have been sent and received. Processes what has
  // arrived and posts the next phase. Returns false if there is none.
  virtual bool next_phase() = 0;

  Buffer workspace(std::size_t bytes) const {
    return wire_.workspace->allocate(bytes, MemoryUse::kCommunication, Stream());
  }
  // Returns the contributions of all ranks, by rank: this rank's own in place, the others at their
  // places in `received`.
  std::vector<const std::byte*> by_rank(const std::byte* own, const std::byte* received,
                                        std::size_t bytes) const {
    std::vector<const std::byte*> sources(static_cast<std::size_t>(wire_.size));
    for (int rank = 0; rank < wire_.size; ++rank) {
      sources[static_cast<std::size_t>(rank)] =
          rank == wire_.rank ? own : slot(received, rank, bytes);
    }
    return sources;
  }
  // Returns the address of the piece of `peer` among those of the other ranks.
  template <class Byte>
  Byte* slot(Byte* received, int peer, std::size_t bytes) const {
    return received + static_cast<std::size_t>(peer < wire_.rank ? peer : peer - 1) * bytes;
  }

  const Wire wire_;
  Messages messages_;
};

}  // namespace trireme
