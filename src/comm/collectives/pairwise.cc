#include <algorithm>
#include <utility>
#include <vector>

#include "collectives.h"
#include "phased_task.h"

namespace trireme {

Range part_of(Range whole, int index, int count) {
  const auto n = static_cast<std::size_t>(count);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t share = whole.size() / n;
  const std::size_t extra = whole.size() % n;
  const std::size_t begin = whole.begin + i * share + std::min(i, extra);
  return {begin, begin + share + (i < extra ? 1 : 0)};
}

namespace {

class DirectAllReduce final : public PhasedTask {
 public:
  DirectAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : PhasedTask(std::move(transport)), data_(std::move(data)), op_(op) {}

 private:
  bool next_phase() override {
    const std::size_t bytes = data_.bytes();
    if (bytes == 0) return false;
    if (!received_) {
      received_ = transport().workspace(bytes * static_cast<std::size_t>(size() - 1));
      for_each_peer(
          [&](int peer) { transport().receive(slot(received_.get(), peer, bytes), bytes, peer); });
      for_each_peer([&](int peer) { transport().send(bytes_of(data_), bytes, peer); });
      return true;
    }
    transport().reduce(op_, data_.dtype(), by_rank(bytes_of(data_), received_.get(), bytes),
                       data_.dtype(), bytes_of(data_), static_cast<std::size_t>(data_.elements()));
    return false;
  }

  Tensor data_;
  ReduceOp op_;
  Buffer received_;
};

// Reduces the buffer segment by segment, so that the workspace stays bounded.
class PairwiseAllReduce final : public PhasedTask {
 public:
  PairwiseAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : PhasedTask(std::move(transport)),
        data_(std::move(data)),
        op_(op),
        element_(size_of(data_.dtype())),
        count_(static_cast<std::size_t>(data_.elements())),
        step_(std::max(std::min(count_, this->transport().segment_bytes() / element_),
                       static_cast<std::size_t>(size()))) {}

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
    const std::size_t own = bytes(rank());
    if (!received_)
      received_ =
          transport().workspace((step_ / count_of_ranks() + 1) * element_ * count_of_ranks());
    for_each_peer(
        [&](int peer) { transport().receive(slot(received_.get(), peer, own), own, peer); });
    for_each_peer([&](int peer) { transport().send(address(peer), bytes(peer), peer); });
  }
  void reduce_own() {
    transport().reduce(op_, data_.dtype(), by_rank(address(rank()), received_.get(), bytes(rank())),
                       data_.dtype(), address(rank()), part(rank()).size());
  }
  void gather() {
    for_each_peer([&](int peer) { transport().receive(address(peer), bytes(peer), peer); });
    for_each_peer([&](int peer) { transport().send(address(rank()), bytes(rank()), peer); });
  }
  std::size_t count_of_ranks() const { return static_cast<std::size_t>(size()); }
  Range part(int rank) const { return part_of(segment_, rank, size()); }
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
  ReduceScatter(TransportPtr transport, Tensor input, Tensor output, ReduceOp op)
      : PhasedTask(std::move(transport)),
        input_(std::move(input)),
        output_(std::move(output)),
        op_(op),
        element_(size_of(input_.dtype())),
        count_(static_cast<std::size_t>(output_.elements())),
        step_(std::max<std::size_t>(
            this->transport().segment_bytes() / element_ / static_cast<std::size_t>(size()), 1)) {}

 private:
  bool next_phase() override {
    if (segment_.end > segment_.begin) {
      transport().reduce(op_, input_.dtype(),
                         by_rank(address(rank()), received_.get(), segment_.size() * element_),
                         input_.dtype(), bytes_of(output_) + segment_.begin * element_,
                         segment_.size());
    }
    segment_ = {segment_.end, std::min(count_, segment_.end + step_)};
    if (segment_.size() == 0) return false;
    const std::size_t bytes = segment_.size() * element_;
    if (!received_) received_ = transport().workspace(bytes * static_cast<std::size_t>(size() - 1));
    for_each_peer(
        [&](int peer) { transport().receive(slot(received_.get(), peer, bytes), bytes, peer); });
    for_each_peer([&](int peer) { transport().send(address(peer), bytes, peer); });
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
  PartExchange(TransportPtr transport, Tensor input, Tensor output, std::size_t part,
               std::size_t stride)
      : PhasedTask(std::move(transport)),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(part),
        stride_(stride) {}

 private:
  bool next_phase() override {
    if (std::exchange(posted_, true)) return false;
    for_each_peer([&](int peer) { transport().receive(target(peer), part_, peer); });
    for_each_peer([&](int peer) { transport().send(source(peer), part_, peer); });
    if (part_ > 0 && target(rank()) != source(rank())) {
      transport().copy(target(rank()), source(rank()), part_);
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

class Barrier final : public PhasedTask {
 public:
  explicit Barrier(TransportPtr transport) : PhasedTask(std::move(transport)) {}

 private:
  bool next_phase() override {
    if (distance_ >= size()) return false;
    transport().signal((rank() + distance_) % size(), (rank() - distance_ + size()) % size());
    distance_ *= 2;
    return true;
  }

  int distance_ = 1;
};

class TransferTask final : public PhasedTask {
 public:
  TransferTask(TransportPtr transport, Transfer transfer)
      : PhasedTask(std::move(transport)), transfer_(std::move(transfer)) {}

 private:
  bool next_phase() override {
    if (std::exchange(posted_, true)) return false;
    const Tensor& tensor = transfer_.tensor;
    if (transfer_.direction == Transfer::Direction::kSend) {
      transport().send(bytes_of(tensor), tensor.bytes(), transfer_.peer);
    } else {
      transport().receive(bytes_of(tensor), tensor.bytes(), transfer_.peer);
    }
    return true;
  }

  Transfer transfer_;
  bool posted_ = false;
};

}  // namespace

std::unique_ptr<Task> make_direct_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<DirectAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_pairwise_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<PairwiseAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_pairwise_reduce_scatter(TransportPtr transport, Tensor input,
                                                   Tensor output, ReduceOp op) {
  return std::make_unique<ReduceScatter>(std::move(transport), std::move(input), std::move(output),
                                         op);
}

std::unique_ptr<Task> make_pairwise_all_gather(TransportPtr transport, Tensor input,
                                               Tensor output) {
  const std::size_t part = input.bytes();
  return std::make_unique<PartExchange>(std::move(transport), std::move(input), std::move(output),
                                        part, 0);
}

std::unique_ptr<Task> make_pairwise_all_to_all(TransportPtr transport, Tensor input,
                                               Tensor output) {
  const std::size_t part = input.bytes() / static_cast<std::size_t>(transport->size());
  return std::make_unique<PartExchange>(std::move(transport), std::move(input), std::move(output),
                                        part, part);
}

std::unique_ptr<Task> make_dissemination_barrier(TransportPtr transport) {
  return std::make_unique<Barrier>(std::move(transport));
}

std::unique_ptr<Task> make_message(TransportPtr transport, Transfer transfer) {
  return std::make_unique<TransferTask>(std::move(transport), std::move(transfer));
}

}  // namespace trireme
