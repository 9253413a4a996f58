// Collectives whose number of messages grows with the logarithm of the number of ranks. So each of
// many ranks sends a few messages, and not one to every other rank.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "trireme/comm/sum_tree.h"

#include "comm/collectives/collectives.h"
#include "comm/collectives/pair_sum.h"
#include "comm/collectives/phased_task.h"

namespace trireme {
namespace {

// Brings all parts to all ranks. In the round of distance d, rank r has the parts of ranks r to
// r + d - 1 and sends them to rank r - d, all modulo the number of ranks (J. Bruck et al., IEEE
// TPDS 8(11), 1997).
class BruckGather : public PhasedTask {
 protected:
  BruckGather(TransportPtr transport, std::size_t part)
      : PhasedTask(std::move(transport)), part_(part) {}

  virtual const std::byte* own_part() const = 0;
  virtual void finish() = 0;  // called when all parts have arrived

  // Returns the part of a rank.
  const std::byte* part_of(int peer) const {
    return gathered_.get() + bytes((peer - rank() + size()) % size());
  }

 private:
  bool next_phase() final {
    if (part_ == 0) return false;
    if (!gathered_) {
      gathered_ = transport().workspace(bytes(size()));
      transport().copy(gathered_.get(), own_part(), part_);
    }
    if (distance_ >= size()) {
      finish();
      return false;
    }
    const std::size_t count = bytes(std::min(distance_, size() - distance_));
    transport().receive(gathered_.get() + bytes(distance_), count, (rank() + distance_) % size());
    transport().send(gathered_.get(), count, (rank() - distance_ + size()) % size());
    distance_ *= 2;
    return true;
  }
  std::size_t bytes(int parts) const { return part_ * static_cast<std::size_t>(parts); }

  std::size_t part_;
  int distance_ = 1;
  Buffer gathered_;  // own part first, then that of the next rank, and so on
};

class BruckAllGather final : public BruckGather {
 public:
  BruckAllGather(TransportPtr transport, Tensor input, Tensor output)
      : BruckGather(std::move(transport), input.bytes()),
        input_(std::move(input)),
        output_(std::move(output)) {}

 private:
  const std::byte* own_part() const override { return bytes_of(input_); }
  void finish() override {
    for (int peer = 0; peer < size(); ++peer) {
      transport().copy(bytes_of(output_) + static_cast<std::size_t>(peer) * input_.bytes(),
                       part_of(peer), input_.bytes());
    }
  }

  Tensor input_, output_;
};

class BruckAllReduce final : public BruckGather {
 public:
  BruckAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : BruckGather(std::move(transport), data.bytes()), data_(std::move(data)), op_(op) {}

 private:
  const std::byte* own_part() const override { return bytes_of(data_); }
  void finish() override {
    std::vector<const std::byte*> sources;
    for (int peer = 0; peer < size(); ++peer) sources.push_back(part_of(peer));
    transport().reduce(op_, data_.dtype(), sources, data_.dtype(), bytes_of(data_),
                       static_cast<std::size_t>(data_.elements()));
  }

  Tensor data_;
  ReduceOp op_;
};

// Follows DoublingPlan. Contributions and results are sent in the tensor's type, partial results in
// its accumulator type.
class DoublingAllReduce final : public PhasedTask {
 public:
  DoublingAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : PhasedTask(std::move(transport)),
        plan_(this->rank(), SumTree(size(), this->transport().blocks().get())),
        data_(std::move(data)),
        op_(op),
        pairs_(this->transport(), plan_, op, data_.dtype()) {}

 private:
  bool next_phase() override {
    if (data_.bytes() == 0) return false;
    const int phase = phase_++;
    const int rounds = static_cast<int>(plan_.rounds.size());
    if (phase == 0) {
      pairs_.join(term_, bytes_of(data_), count());
    } else if (phase == 1) {
      if (plan_.has_term) pairs_.begin(term_, bytes_of(data_), count());
    } else if (phase <= rounds + 1) {
      take_in(phase - 2);
    }
    if (phase >= 1 && phase <= rounds) {
      exchange(phase - 1);
    } else if (phase == rounds + 1) {
      finish();
    }
    return phase <= rounds + 1;
  }

  void exchange(int round) {
    const int peer = plan_.rounds[static_cast<std::size_t>(round)].peer;
    const std::size_t bytes = count() * pairs_.partial_width();
    transport().receive(term_.received.get(), bytes, peer);
    transport().send(partial(), bytes, peer);
  }
  void take_in(int round) {
    const std::byte* own = partial();
    const std::byte* other = term_.received.get();
    const bool left = plan_.rounds[static_cast<std::size_t>(round)].is_left;
    const std::array<const std::byte*, 2> sources{left ? own : other, left ? other : own};
    const bool last = round + 1 == static_cast<int>(plan_.rounds.size());
    transport().reduce(op_, pairs_.partial_type(), sources,
                       last ? data_.dtype() : pairs_.partial_type(),
                       last ? bytes_of(data_) : partial(), count());
  }
  void finish() {
    if (!plan_.has_partner()) return;
    if (plan_.has_term) {
      transport().send(bytes_of(data_), data_.bytes(), plan_.partner);
    } else {
      transport().receive(bytes_of(data_), data_.bytes(), plan_.partner);
    }
  }
  std::byte* partial() const { return term_.partial_at(bytes_of(data_)); }
  std::size_t count() const { return static_cast<std::size_t>(data_.elements()); }

  const DoublingPlan plan_;
  Tensor data_;
  ReduceOp op_;
  PairSum pairs_;
  PairSum::Term term_;
  int phase_ = 0;
};

// Brings each part to its rank in log2(size) rounds, by way of other ranks: in the round of
// distance d, a part goes d ranks on if the distance that it has to go has that bit set (Bruck, as
// above). Goes through the parts slice by slice, so that workspace stays bounded.
class BruckAllToAll final : public PhasedTask {
 public:
  BruckAllToAll(TransportPtr transport, Tensor input, Tensor output)
      : PhasedTask(std::move(transport)),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(input_.bytes() / static_cast<std::size_t>(size())),
        step_(std::max<std::size_t>(
            this->transport().segment_bytes() / kBuffers / static_cast<std::size_t>(size()), 1)) {}

 private:
  static constexpr std::size_t kBuffers = 3;

  bool next_phase() override {
    if (distance_ > 0) {
      int place = 0;
      for_each_part(distance_, [&](int far) { copy(part(far), received_.get() + bytes(place++)); });
      distance_ *= 2;
    } else if (!begin_slice()) {
      return false;
    }
    while (distance_ >= size()) {
      end_slice();
      if (!begin_slice()) return false;
    }
    int count = 0;
    for_each_part(distance_, [&](int far) { copy(sent_.get() + bytes(count++), part(far)); });
    transport().receive(received_.get(), bytes(count), (rank() - distance_ + size()) % size());
    transport().send(sent_.get(), bytes(count), (rank() + distance_) % size());
    return true;
  }
  // Returns false if there is no slice any more.
  bool begin_slice() {
    slice_ = {slice_.end, std::min(part_, slice_.end + step_)};
    if (slice_.size() == 0) return false;
    if (!parts_) {
      parts_ = transport().workspace(bytes(size()));
      sent_ = transport().workspace(bytes(size()));
      received_ = transport().workspace(bytes(size()));
    }
    for (int far = 0; far < size(); ++far) {
      copy(part(far), slice_of(input_, (rank() + far) % size()));
    }
    distance_ = 1;
    return true;
  }
  void end_slice() {
    for (int far = 0; far < size(); ++far) {
      copy(slice_of(output_, (rank() - far + size()) % size()), part(far));
    }
  }
  template <class Visit>
  void for_each_part(int distance, Visit visit) const {
    for (int far = distance; far < size(); ++far) {
      if ((far & distance) != 0) visit(far);
    }
  }
  void copy(std::byte* to, const std::byte* from) { transport().copy(to, from, slice_.size()); }
  std::byte* part(int far) const { return parts_.get() + bytes(far); }
  std::size_t bytes(int parts) const { return slice_.size() * static_cast<std::size_t>(parts); }
  std::byte* slice_of(const Tensor& tensor, int part) const {
    return bytes_of(tensor) + part_ * static_cast<std::size_t>(part) + slice_.begin;
  }

  Tensor input_, output_;
  std::size_t part_, step_;  // bytes
  Range slice_;              // of each part
  int distance_ = 0;         // 0: before the first slice
  Buffer parts_;             // by the distance between where they began and where they go
  Buffer sent_, received_;
};

}  // namespace

std::unique_ptr<Task> make_bruck_all_to_all(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<BruckAllToAll>(std::move(transport), std::move(input), std::move(output));
}

std::unique_ptr<Task> make_bruck_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<BruckAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_doubling_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<DoublingAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_bruck_all_gather(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<BruckAllGather>(std::move(transport), std::move(input),
                                          std::move(output));
}

}  // namespace trireme
