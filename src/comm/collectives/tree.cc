// Collectives along binomial trees and chains, in segments: while a rank sends one segment on, the
// next one arrives.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/sum_tree.h"

#include "comm/collectives/collectives.h"
#include "comm/collectives/pair_sum.h"
#include "comm/collectives/segmented_task.h"

namespace trireme {
namespace {

// A rank receives each segment and sends it on.
class ForwardedBroadcast : public SegmentedTask {
 protected:
  ForwardedBroadcast(TransportPtr transport, Tensor data)
      : SegmentedTask(std::move(transport)), data_(std::move(data)) {}

  // The rank that this one receives from, -1 at the root, and those that it sends to, in order.
  virtual int source() const = 0;
  virtual std::vector<int> targets() const = 0;

 private:
  Pipeline plan() final {
    source_ = source();
    targets_ = targets();
    length_ = segment_length(data_.bytes(), 1, transport().worthwhile_bytes(),
                             transport().segment_bytes());
    return {.segments = segments_of(data_.bytes(), length_), .stages = 3, .stride = 2};
  }
  void run(std::size_t segment, int stage) final {
    const std::size_t begin = segment * length_;
    const std::size_t bytes = std::min(length_, data_.bytes() - begin);
    if (stage == 0 && source_ >= 0) transport().receive(bytes_of(data_) + begin, bytes, source_);
    if (stage != 1) return;
    for (const int target : targets_) transport().send(bytes_of(data_) + begin, bytes, target);
  }

  Tensor data_;
  int source_ = -1;
  std::vector<int> targets_;
  std::size_t length_ = 1;
};

// Ranks are counted from the root. A rank's parent is its number without the lowest set bit. Its
// children are its number with one bit set below that bit.
class BinomialBroadcast final : public ForwardedBroadcast {
 public:
  BinomialBroadcast(TransportPtr transport, Tensor data, int root)
      : ForwardedBroadcast(std::move(transport), std::move(data)),
        root_(root),
        self_((rank() - root + size()) % size()) {}

 private:
  int source() const override { return self_ == 0 ? -1 : peer(self_ - lowest()); }
  std::vector<int> targets() const override {
    std::vector<int> result;
    int bit = 1;
    while (bit < lowest() && self_ + bit < size()) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) result.push_back(peer(self_ + bit));  // the largest first
    return result;
  }
  int lowest() const { return self_ == 0 ? size() : self_ & -self_; }
  int peer(int from_root) const { return (from_root + root_) % size(); }

  int root_, self_;
};

// The data pass along all ranks in the order of the network, beginning at the root.
class ChainBroadcast final : public ForwardedBroadcast {
 public:
  ChainBroadcast(TransportPtr transport, Tensor data, int root)
      : ForwardedBroadcast(std::move(transport), std::move(data)) {
    order_ = network_order();
    std::ranges::rotate(order_, std::ranges::find(order_, root));
    self_ = static_cast<std::size_t>(std::ranges::find(order_, rank()) - order_.begin());
  }

 private:
  int source() const override { return self_ == 0 ? -1 : order_[self_ - 1]; }
  std::vector<int> targets() const override {
    if (self_ + 1 == order_.size()) return {};
    return {order_[self_ + 1]};
  }

  std::vector<int> order_;
  std::size_t self_ = 0;
};

// Reduces to term 0 along T(size), and sends the result back the same way.
class BinomialAllReduce final : public SegmentedTask {
 public:
  BinomialAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : SegmentedTask(std::move(transport)),
        tree_(size(), this->transport().blocks().get()),
        plan_(rank(), tree_),
        data_(std::move(data)),
        op_(op),
        pairs_(this->transport(), plan_, op, data_.dtype()) {}

 private:
  struct Slot {
    std::size_t begin, count;
    PairSum::Term term;
  };

  // Stage 0 brings the contributions of pairs together; then log2(terms) stages up, as many down,
  // one for the other rank of each pair, and one to end.
  Pipeline plan() override {
    if (size() == 1) return {};
    Pipeline result{.segments = 1, .stages = 2 * levels() + 3, .stride = 1, .skew = 1};
    const auto count = static_cast<std::size_t>(data_.elements());
    const std::size_t length = segment_length(count, element(), transport().worthwhile_bytes(),
                                              transport().segment_bytes() / result.window());
    for (std::size_t begin = 0; begin < count; begin += length) {
      slots_.push_back({begin, std::min(length, count - begin), {}});
    }
    result.segments = slots_.size();
    return result;
  }

  void run(std::size_t segment, int stage) override {
    Slot& slot = slots_[segment];
    if (stage == 0) {
      const bool receives_more = levels() > 0 && term() % 2 == 0;
      return pairs_.join(slot.term, own(slot), slot.count, receives_more);
    }
    if (!plan_.has_term) {
      if (stage == 2 * levels() + 1) receive(slot, plan_.partner);
      return;
    }
    if (stage == 1) pairs_.begin(slot.term, own(slot), slot.count);
    if (stage > 1 && stage <= levels() + 1) take_in(slot, stage - 2);
    if (stage <= levels()) {
      give_up(slot, stage - 1);
    } else if (stage <= 2 * levels()) {
      hand_down(slot, 1 << (2 * levels() - stage));
    } else if (stage == 2 * levels() + 1 && plan_.has_partner()) {
      send(slot, plan_.partner);
    }
  }

  int levels() const { return std::countr_zero(static_cast<unsigned>(tree_.terms())); }
  int term() const { return tree_.term_of(rank()); }
  std::size_t element() const { return size_of(data_.dtype()); }
  std::byte* own(const Slot& slot) const { return bytes_of(data_) + slot.begin * element(); }
  std::byte* partial(const Slot& slot) const { return slot.term.partial_at(own(slot)); }
  std::size_t bytes(const Slot& slot) const { return slot.count * pairs_.partial_width(); }
  void send(const Slot& slot, int peer) {
    transport().send(own(slot), slot.count * element(), peer);
  }
  void receive(const Slot& slot, int peer) {
    transport().receive(own(slot), slot.count * element(), peer);
  }

  void give_up(Slot& slot, int level) {
    const int bit = 1 << level;
    if (term() % bit != 0) return;
    if ((term() & bit) != 0) {
      transport().send(partial(slot), bytes(slot), tree_.rank_of(term() - bit));
    } else {
      transport().receive(slot.term.received.get(), bytes(slot), tree_.rank_of(term() + bit));
    }
  }
  void take_in(Slot& slot, int level) {
    if (term() % (2 << level) != 0) return;
    const bool last = level + 1 == levels();
    const std::array<const std::byte*, 2> sources{partial(slot), slot.term.received.get()};
    const DType type = pairs_.partial_type();
    transport().reduce(op_, type, sources, last ? data_.dtype() : type,
                       last ? own(slot) : partial(slot), slot.count);
    if (last) slot.term = {};
  }
  void hand_down(Slot& slot, int bit) {
    if (term() % (2 * bit) == bit) {
      slot.term = {};  // sent
      receive(slot, tree_.rank_of(term() - bit));
    } else if (term() % (2 * bit) == 0) {
      send(slot, tree_.rank_of(term() + bit));
    }
  }

  const SumTree tree_;
  const DoublingPlan plan_;
  Tensor data_;
  ReduceOp op_;
  PairSum pairs_;
  std::vector<Slot> slots_;  // by segment
};

}  // namespace

std::unique_ptr<Task> make_binomial_broadcast(TransportPtr transport, Tensor data, int root) {
  return std::make_unique<BinomialBroadcast>(std::move(transport), std::move(data), root);
}

std::unique_ptr<Task> make_chain_broadcast(TransportPtr transport, Tensor data, int root) {
  return std::make_unique<ChainBroadcast>(std::move(transport), std::move(data), root);
}

std::unique_ptr<Task> make_binomial_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<BinomialAllReduce>(std::move(transport), std::move(data), op);
}

}  // namespace trireme
