#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/comm/segments.h"

#include "comm/collectives/collectives.h"
#include "comm/collectives/phased_task.h"

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

// With whom a rank exchanges messages at the same time.
enum class Partners {
  kAll,       // with all others at once
  kOneByOne,  // it sends to the next rank while it receives from the one before, then to the one
              // after the next, and so on, in segments. So streams that share a link, none of which
              // gets its fair share all the time, are fewer.
};

// A task that exchanges messages with every other rank, once or again and again.
class PairwiseTask : public PhasedTask {
 protected:
  PairwiseTask(TransportPtr transport, Partners partners)
      : PhasedTask(std::move(transport)), partners_(partners), turn_(this->transport().size()) {}

  // Processes what has arrived, if anything. Returns whether there is another exchange.
  virtual bool next_exchange() = 0;
  virtual void receive_from(int peer) = 0;
  virtual void send_to(int peer) = 0;
  // Called once the first messages of an exchange are on their way.
  virtual void while_they_travel() {}

  // How many of the `count` elements that a rank has for each other one go in one exchange: at most
  // `most` bytes of them.
  std::size_t in_exchange(std::size_t count, std::size_t element, std::size_t most) const {
    const std::size_t least = partners_ == Partners::kAll ? most : kTurnBytes;
    return std::min(segment_length(count, element, least, most), std::max<std::size_t>(count, 1));
  }

 private:
  bool next_phase() final {
    if (turn_ == size()) {
      if (!next_exchange()) return false;
      turn_ = 1;
    }
    const int end = partners_ == Partners::kAll ? size() : std::min(turn_ + 1, size());
    for (int turn = turn_; turn < end; ++turn) receive_from((rank() - turn + size()) % size());
    for (int turn = turn_; turn < end; ++turn) send_to((rank() + turn) % size());
    if (turn_ == 1) while_they_travel();
    turn_ = end;
    return true;
  }

  Partners partners_;
  int turn_;  // the distance to the next partner; size(): the exchange is over
};

// Reduces the buffer segment by segment, so that the workspace stays bounded.
class PairwiseAllReduce final : public PairwiseTask {
 public:
  PairwiseAllReduce(TransportPtr transport, Partners partners, Tensor data, ReduceOp op)
      : PairwiseTask(std::move(transport), partners),
        data_(std::move(data)),
        op_(op),
        element_(size_of(data_.dtype())),
        count_(static_cast<std::size_t>(data_.elements())),
        step_(count_of_ranks() *
              in_exchange((count_ + count_of_ranks() - 1) / count_of_ranks(), element_,
                          this->transport().segment_bytes() / count_of_ranks())) {}

 private:
  bool next_exchange() override {
    if (scattering_) {
      reduce_own();
      scattering_ = false;
      return true;
    }
    segment_ = {segment_.end, std::min(count_, segment_.end + step_)};
    if (segment_.size() == 0) return false;
    if (!received_)
      received_ =
          transport().workspace((step_ / count_of_ranks() + 1) * element_ * count_of_ranks());
    scattering_ = true;
    return true;
  }
  void receive_from(int peer) override {
    const std::size_t own = bytes(rank());
    if (scattering_) {
      transport().receive(slot(received_.get(), peer, own), own, peer);
    } else {
      transport().receive(address(peer), bytes(peer), peer);
    }
  }
  void send_to(int peer) override {
    const int part = scattering_ ? peer : rank();
    transport().send(address(part), bytes(part), peer);
  }

  void reduce_own() {
    transport().reduce(op_, data_.dtype(), by_rank(address(rank()), received_.get(), bytes(rank())),
                       data_.dtype(), address(rank()), part(rank()).size());
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

class ReduceScatter final : public PairwiseTask {
 public:
  ReduceScatter(TransportPtr transport, Partners partners, Tensor input, Tensor output, ReduceOp op)
      : PairwiseTask(std::move(transport), partners),
        input_(std::move(input)),
        output_(std::move(output)),
        op_(op),
        element_(size_of(input_.dtype())),
        count_(static_cast<std::size_t>(output_.elements())),
        step_(in_exchange(count_, element_,
                          this->transport().segment_bytes() / static_cast<std::size_t>(size()))) {}

 private:
  bool next_exchange() override {
    if (segment_.end > segment_.begin) {
      transport().reduce(op_, input_.dtype(), by_rank(address(rank()), received_.get(), bytes()),
                         input_.dtype(), bytes_of(output_) + segment_.begin * element_,
                         segment_.size());
    }
    segment_ = {segment_.end, std::min(count_, segment_.end + step_)};
    if (segment_.size() == 0) return false;
    if (!received_)
      received_ = transport().workspace(bytes() * static_cast<std::size_t>(size() - 1));
    return true;
  }
  void receive_from(int peer) override {
    transport().receive(slot(received_.get(), peer, bytes()), bytes(), peer);
  }
  void send_to(int peer) override { transport().send(address(peer), bytes(), peer); }

  std::size_t bytes() const { return segment_.size() * element_; }
  const std::byte* address(int rank) const {
    return bytes_of(input_) + (static_cast<std::size_t>(rank) * count_ + segment_.begin) * element_;
  }

  Tensor input_, output_;
  ReduceOp op_;
  std::size_t element_, count_, step_;
  Range segment_;
  Buffer received_;
};

// All-gather and all-to-all: every rank sends a part to every other rank.
class PartExchange final : public PairwiseTask {
 public:
  // `stride` is the distance between the parts in `input`; 0: all ranks get the same part.
  PartExchange(TransportPtr transport, Partners partners, Tensor input, Tensor output,
               std::size_t part, std::size_t stride)
      : PairwiseTask(std::move(transport), partners),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(part),
        stride_(stride),
        step_(in_exchange(part, 1,
                          partners == Partners::kAll ? part : this->transport().segment_bytes())) {}

 private:
  bool next_exchange() override {
    segment_ = {segment_.end, std::min(part_, segment_.end + step_)};
    return segment_.size() > 0;
  }
  void while_they_travel() override {
    if (target(rank()) != source(rank())) {
      transport().copy(target(rank()), source(rank()), segment_.size());
    }
  }
  void receive_from(int peer) override { transport().receive(target(peer), segment_.size(), peer); }
  void send_to(int peer) override { transport().send(source(peer), segment_.size(), peer); }

  const std::byte* source(int peer) const {
    return bytes_of(input_) + static_cast<std::size_t>(peer) * stride_ + segment_.begin;
  }
  std::byte* target(int peer) const {
    return bytes_of(output_) + static_cast<std::size_t>(peer) * part_ + segment_.begin;
  }

  Tensor input_, output_;
  std::size_t part_, stride_, step_;  // bytes
  Range segment_;
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

std::unique_ptr<Task> all_gather(TransportPtr transport, Partners partners, Tensor input,
                                 Tensor output) {
  const std::size_t part = input.bytes();
  return std::make_unique<PartExchange>(std::move(transport), partners, std::move(input),
                                        std::move(output), part, 0);
}

std::unique_ptr<Task> all_to_all(TransportPtr transport, Partners partners, Tensor input,
                                 Tensor output) {
  const std::size_t part = input.bytes() / static_cast<std::size_t>(transport->size());
  return std::make_unique<PartExchange>(std::move(transport), partners, std::move(input),
                                        std::move(output), part, part);
}

}  // namespace

std::unique_ptr<Task> make_direct_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<DirectAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_pairwise_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<PairwiseAllReduce>(std::move(transport), Partners::kAll, std::move(data),
                                             op);
}

std::unique_ptr<Task> make_stepwise_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<PairwiseAllReduce>(std::move(transport), Partners::kOneByOne,
                                             std::move(data), op);
}

std::unique_ptr<Task> make_pairwise_reduce_scatter(TransportPtr transport, Tensor input,
                                                   Tensor output, ReduceOp op) {
  return std::make_unique<ReduceScatter>(std::move(transport), Partners::kAll, std::move(input),
                                         std::move(output), op);
}

std::unique_ptr<Task> make_stepwise_reduce_scatter(TransportPtr transport, Tensor input,
                                                   Tensor output, ReduceOp op) {
  return std::make_unique<ReduceScatter>(std::move(transport), Partners::kOneByOne,
                                         std::move(input), std::move(output), op);
}

std::unique_ptr<Task> make_pairwise_all_gather(TransportPtr transport, Tensor input,
                                               Tensor output) {
  return all_gather(std::move(transport), Partners::kAll, std::move(input), std::move(output));
}

std::unique_ptr<Task> make_stepwise_all_gather(TransportPtr transport, Tensor input,
                                               Tensor output) {
  return all_gather(std::move(transport), Partners::kOneByOne, std::move(input), std::move(output));
}

std::unique_ptr<Task> make_pairwise_all_to_all(TransportPtr transport, Tensor input,
                                               Tensor output) {
  return all_to_all(std::move(transport), Partners::kAll, std::move(input), std::move(output));
}

std::unique_ptr<Task> make_stepwise_all_to_all(TransportPtr transport, Tensor input,
                                               Tensor output) {
  return all_to_all(std::move(transport), Partners::kOneByOne, std::move(input), std::move(output));
}

std::unique_ptr<Task> make_dissemination_barrier(TransportPtr transport) {
  return std::make_unique<Barrier>(std::move(transport));
}

std::unique_ptr<Task> make_message(TransportPtr transport, Transfer transfer) {
  return std::make_unique<TransferTask>(std::move(transport), std::move(transfer));
}

}  // namespace trireme
