#include "collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "phased_task.h"
#include "reduce.h"

namespace trireme {
namespace {

class DirectAllReduce final : public PhasedTask {
 public:
  DirectAllReduce(const Wire& wire, Tensor data, ReduceOp op)
      : PhasedTask(wire), data_(std::move(data)), op_(op) {}

 private:
  bool next_phase() override {
    const std::size_t bytes = data_.bytes();
    if (bytes == 0) return false;
    if (!received_) {
      received_ = workspace(bytes * static_cast<std::size_t>(wire_.size - 1));
      for_each_peer(wire_, [&](int peer) {
        messages_.receive(wire_, slot(received_.get(), peer, bytes), bytes, peer);
      });
      for_each_peer(wire_, [&](int peer) { messages_.send(wire_, bytes_of(data_), bytes, peer); });
      return true;
    }
    reduce_tree(op_, data_.dtype(), by_rank(bytes_of(data_), received_.get(), bytes),
                bytes_of(data_), static_cast<std::size_t>(data_.elements()));
    return false;
  }

  Tensor data_;
  ReduceOp op_;
  Buffer received_;
};

// A range of elements of a buffer.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Divides a range into `count` nearly equal parts and returns part `index`.
Range part_of(Range whole, int index, int count) {
  const auto n = static_cast<std::size_t>(count);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t share = whole.size() / n;
  const std::size_t extra = whole.size() % n;
  const std::size_t begin = whole.begin + i * share + std::min(i, extra);
  return {begin, begin + share + (i < extra ? 1 : 0)};
}

// Reduces the buffer segment by segment, so that the workspace stays bounded.
class PairwiseAllReduce final : public PhasedTask {
 public:
  PairwiseAllReduce(const Wire& wire, Tensor data, ReduceOp op)
      : PhasedTask(wire),
        data_(std::move(data)),
        op_(op),
        element_(size_of(data_.dtype())),
        count_(static_cast<std::size_t>(data_.elements())),
        step_(std::max(wire.segment_bytes / element_, static_cast<std::size_t>(wire.size))) {}

 private:
  bool next_phase() override {
    if (scattering_) {
      reduce_own();
      gather();
      scattering_ = false;
      segment_.begin = segment_.end;
      return true;
    }
    if (segment_.begin == count_) return false;
    segment_.end = std::min(count_, segment_.begin + step_);
    scatter();
    scattering_ = true;
    return true;
  }

  void scatter() {
    const std::size_t own = bytes(wire_.rank);
    if (!received_)
      received_ = workspace((step_ / count_of_ranks() + 1) * element_ * count_of_ranks());
    for_each_peer(wire_, [&](int peer) {
      messages_.receive(wire_, slot(received_.get(), peer, own), own, peer);
    });
    for_each_peer(wire_,
                  [&](int peer) { messages_.send(wire_, address(peer), bytes(peer), peer); });
  }
  void reduce_own() {
    reduce_tree(op_, data_.dtype(),
                by_rank(address(wire_.rank), received_.get(), bytes(wire_.rank)),
                address(wire_.rank), part(wire_.rank).size());
  }
  void gather() {
    for_each_peer(wire_,
                  [&](int peer) { messages_.receive(wire_, address(peer), bytes(peer), peer); });
    for_each_peer(wire_, [&](int peer) {
      messages_.send(wire_, address(wire_.rank), bytes(wire_.rank), peer);
    });
  }
  std::size_t count_of_ranks() const { return static_cast<std::size_t>(wire_.size); }
  Range part(int rank) const { return part_of(segment_, rank, wire_.size); }
  std::byte* address(int rank) const { return bytes_of(data_) + part(rank).begin * element_; }
  std::size_t bytes(int rank) const { return part(rank).size() * element_; }

  Tensor data_;
  ReduceOp op_;
  std::size_t element_, count_, step_;
  Range segment_;
  bool scattering_ = false;
  Buffer received_;
};

class ReduceScatter final : public PhasedTask {
 public:
  ReduceScatter(const Wire& wire, Tensor input, Tensor output, ReduceOp op)
      : PhasedTask(wire),
        input_(std::move(input)),
        output_(std::move(output)),
        op_(op),
        element_(size_of(input_.dtype())),
        count_(static_cast<std::size_t>(output_.elements())),
        step_(std::max<std::size_t>(
            wire.segment_bytes / element_ / static_cast<std::size_t>(wire.size), 1)) {}

 private:
  bool next_phase() override {
    if (segment_.end > segment_.begin) {
      reduce_tree(op_, input_.dtype(),
                  by_rank(address(wire_.rank), received_.get(), segment_.size() * element_),
                  bytes_of(output_) + segment_.begin * element_, segment_.size());
    }
    segment_ = {segment_.end, std::min(count_, segment_.end + step_)};
    if (segment_.size() == 0) return false;
    const std::size_t bytes = segment_.size() * element_;
    if (!received_) received_ = workspace(bytes * static_cast<std::size_t>(wire_.size - 1));
    for_each_peer(wire_, [&](int peer) {
      messages_.receive(wire_, slot(received_.get(), peer, bytes), bytes, peer);
    });
    for_each_peer(wire_, [&](int peer) { messages_.send(wire_, address(peer), bytes, peer); });
    return true;
  }
  const std::byte* address(int rank) const {
    return bytes_of(input_) + (static_cast<std::size_t>(rank) * count_ + segment_.begin) * element_;
  }

  Tensor input_, output_;
  ReduceOp op_;
  std::size_t element_, count_, step_;
  Range segment_;
  Buffer received_;
};

// All-gather and all-to-all: every rank sends a part to every other rank, in one phase.
class PartExchange final : public PhasedTask {
 public:
  // `stride` is the distance between the parts in `input`; 0: all ranks get the same part.
  PartExchange(const Wire& wire, Tensor input, Tensor output, std::size_t part, std::size_t stride)
      : PhasedTask(wire),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(part),
        stride_(stride) {}

 private:
  bool next_phase() override {
    if (std::exchange(posted_, true)) return false;
    for_each_peer(wire_, [&](int peer) { messages_.receive(wire_, target(peer), part_, peer); });
    for_each_peer(wire_, [&](int peer) { messages_.send(wire_, source(peer), part_, peer); });
    if (part_ > 0 && target(wire_.rank) != source(wire_.rank)) {
      std::memcpy(target(wire_.rank), source(wire_.rank), part_);
    }
    return true;
  }
  const std::byte* source(int peer) const {
    return bytes_of(input_) + static_cast<std::size_t>(peer) * stride_;
  }
  std::byte* target(int peer) const {
    return bytes_of(output_) + static_cast<std::size_t>(peer) * part_;
  }

  Tensor input_, output_;
  std::size_t part_, stride_;
  bool posted_ = false;
};

class Broadcast final : public PhasedTask {
 public:
  Broadcast(const Wire& wire, Tensor data, int root)
      : PhasedTask(wire), data_(std::move(data)), root_(root) {}

 private:
  // Ranks are counted from the root. A rank's parent is its number without the lowest set bit. Its
  // children are its number with one bit set below that bit.
  bool next_phase() override {
    const int self = (wire_.rank - root_ + wire_.size) % wire_.size;
    const int lowest = self == 0 ? wire_.size : self & -self;
    if (phase_++ == 0) {
      if (self != 0) messages_.receive(wire_, bytes_of(data_), data_.bytes(), peer(self - lowest));
      return true;
    }
    if (phase_ > 2) return false;
    int bit = 1;
    while (bit < lowest && self + bit < wire_.size) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) {  // the largest subtree first
      messages_.send(wire_, bytes_of(data_), data_.bytes(), peer(self + bit));
    }
    return true;
  }
  int peer(int from_root) const { return (from_root + root_) % wire_.size; }

  Tensor data_;
  int root_;
  int phase_ = 0;
};

class Barrier final : public PhasedTask {
 public:
  explicit Barrier(const Wire& wire) : PhasedTask(wire) {}

 private:
  bool next_phase() override {
    if (distance_ >= wire_.size) return false;
    messages_.signal(wire_, (wire_.rank + distance_) % wire_.size,
                     (wire_.rank - distance_ + wire_.size) % wire_.size);
    distance_ *= 2;
    return true;
  }

  int distance_ = 1;
};

class TransferTask final : public PhasedTask {
 public:
  TransferTask(const Wire& wire, Transfer transfer)
      : PhasedTask(wire), transfer_(std::move(transfer)) {}

 private:
  bool next_phase() override {
    if (std::exchange(posted_, true)) return false;
    const Tensor& tensor = transfer_.tensor;
    if (transfer_.direction == Transfer::Direction::kSend) {
      messages_.send(wire_, bytes_of(tensor), tensor.bytes(), transfer_.peer);
    } else {
      messages_.receive(wire_, bytes_of(tensor), tensor.bytes(), transfer_.peer);
    }
    return true;
  }

  Transfer transfer_;
  bool posted_ = false;
};

class LibraryTask final : public Task {
 public:
  LibraryTask(std::function<int(MPI_Request*)> start, Tensors tensors)
      : start_(std::move(start)), tensors_(std::move(tensors)) {}

  Step advance() override {
    if (start_) {
      check_mpi(start_(&request_), "start a collective operation");
      start_ = nullptr;
    }
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "finish a collective operation");
    return done != 0 ? Step::kDone : Step::kIdle;
  }

 private:
  std::function<int(MPI_Request*)> start_;
  Tensors tensors_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Task> make_direct_all_reduce(const Wire& wire, Tensor data, ReduceOp op) {
  return std::make_unique<DirectAllReduce>(wire, std::move(data), op);
}

std::unique_ptr<Task> make_pairwise_all_reduce(const Wire& wire, Tensor data, ReduceOp op) {
  return std::make_unique<PairwiseAllReduce>(wire, std::move(data), op);
}

std::unique_ptr<Task> make_reduce_scatter(const Wire& wire, Tensor input, Tensor output,
                                          ReduceOp op) {
  return std::make_unique<ReduceScatter>(wire, std::move(input), std::move(output), op);
}

std::unique_ptr<Task> make_all_gather(const Wire& wire, Tensor input, Tensor output) {
  const std::size_t part = input.bytes();
  return std::make_unique<PartExchange>(wire, std::move(input), std::move(output), part, 0);
}

std::unique_ptr<Task> make_all_to_all(const Wire& wire, Tensor input, Tensor output) {
  const std::size_t part = input.bytes() / static_cast<std::size_t>(wire.size);
  return std::make_unique<PartExchange>(wire, std::move(input), std::move(output), part, part);
}

std::unique_ptr<Task> make_broadcast(const Wire& wire, Tensor data, int root) {
  return std::make_unique<Broadcast>(wire, std::move(data), root);
}

std::unique_ptr<Task> make_barrier(const Wire& wire) {
  return std::make_unique<Barrier>(wire);
}

std::unique_ptr<Task> make_transfer(const Wire& wire, const Transfer& transfer) {
  return std::make_unique<TransferTask>(wire, transfer);
}

std::unique_ptr<Task> make_library_task(std::function<int(MPI_Request*)> start, Tensors tensors) {
  return std::make_unique<LibraryTask>(std::move(start), std::move(tensors));
}

}  // namespace trireme
