// Tasks that alternate between posting messages and processing what has arrived.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "trireme/comm/task.h"
#include "trireme/comm/transport.h"

namespace trireme {

inline std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.raw());
}

// A range of elements of a buffer.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Returns part `index` of `count` nearly equal ones.
Range part_of(Range whole, int index, int count);

// A task of phases. Each phase posts messages and waits for them.
class PhasedTask : public Task {
 public:
  Step advance() final {
    if (!transport_->done()) return Step::kIdle;
    return next_phase() ? Step::kMoved : Step::kDone;
  }

 protected:
  explicit PhasedTask(TransportPtr transport) : transport_(std::move(transport)) {}

  // Called at the start, and whenever all messages have been sent and received. Processes what has
  // arrived and posts the next phase. Returns false if there is none.
  virtual bool next_phase() = 0;

  Transport& transport() const { return *transport_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  // Calls visit(peer) for all other ranks, starting with the next one, so that not all send to rank
  // 0 at once.
  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (int step = 1; step < size(); ++step) visit((rank() + step) % size());
  }
  // Returns the contributions of all ranks, by rank: this rank's own in place, the others at their
  // places in `received`.
  std::vector<const std::byte*> by_rank(const std::byte* own, const std::byte* received,
                                        std::size_t bytes) const {
    std::vector<const std::byte*> sources(static_cast<std::size_t>(size()));
    for (int peer = 0; peer < size(); ++peer) {
      sources[static_cast<std::size_t>(peer)] = peer == rank() ? own : slot(received, peer, bytes);
    }
    return sources;
  }
  // Returns the address of the piece of `peer` among those of the other ranks.
  template <class Byte>
  Byte* slot(Byte* received, int peer, std::size_t bytes) const {
    return received + static_cast<std::size_t>(peer < rank() ? peer : peer - 1) * bytes;
  }

 private:
  TransportPtr transport_;
};

}  // namespace trireme
