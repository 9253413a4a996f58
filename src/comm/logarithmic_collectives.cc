// Collectives whose messages grow with the logarithm of the ranks: what many ranks agree on costs
// each of them a few messages and not one for every other.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "phased_task.h"
#include "reduce.h"

namespace trireme {
namespace {

// All parts on all ranks: in the round of distance d every rank hands what it has from itself and
// the d - 1 ranks behind it to the rank d before it (J. Bruck et al., IEEE TPDS 8(11), 1997).
class BruckGather : public PhasedTask {
 protected:
  BruckGather(const Wire& wire, std::size_t part) : PhasedTask(wire), part_(part) {}

  virtual const std::byte* own_part() const = 0;
  virtual void finish() = 0;  // all parts are here

  // What came from a rank.
  const std::byte* part_of(int rank) const {
    return gathered_.get() + bytes((rank - wire_.rank + wire_.size) % wire_.size);
  }

 private:
  bool next_phase() final {
    if (part_ == 0) return false;
    if (!gathered_) {
      gathered_ = workspace(bytes(wire_.size));
      std::memcpy(gathered_.get(), own_part(), part_);
    }
    if (distance_ >= wire_.size) {
      finish();
      return false;
    }
    const std::size_t count = bytes(std::min(distance_, wire_.size - distance_));
    messages_.receive(wire_, gathered_.get() + bytes(distance_), count,
                      (wire_.rank + distance_) % wire_.size);
    messages_.send(wire_, gathered_.get(), count,
                   (wire_.rank - distance_ + wire_.size) % wire_.size);
    distance_ *= 2;
    return true;
  }
  std::size_t bytes(int parts) const { return part_ * static_cast<std::size_t>(parts); }

  std::size_t part_;
  int distance_ = 1;
  Buffer gathered_;  // own part first, then that of the next rank, ...
};

class BruckAllGather final : public BruckGather {
 public:
  BruckAllGather(const Wire& wire, Tensor input, Tensor output)
      : BruckGather(wire, input.bytes()), input_(std::move(input)), output_(std::move(output)) {}

 private:
  const std::byte* own_part() const override { return bytes_of(input_); }
  void finish() override {
    for (int rank = 0; rank < wire_.size; ++rank) {
      std::memcpy(bytes_of(output_) + static_cast<std::size_t>(rank) * input_.bytes(),
                  part_of(rank), input_.bytes());
    }
  }

  Tensor input_, output_;
};

class BruckAllReduce final : public BruckGather {
 public:
  BruckAllReduce(const Wire& wire, Tensor data, ReduceOp op)
      : BruckGather(wire, data.bytes()), data_(std::move(data)), op_(op) {}

 private:
  const std::byte* own_part() const override { return bytes_of(data_); }
  void finish() override {
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < wire_.size; ++rank) sources.push_back(part_of(rank));
    reduce_in_order(data_.dtype(), op_, sources, bytes_of(data_),
                    static_cast<std::size_t>(data_.elements()));
  }

  Tensor data_;
  ReduceOp op_;
};

// Up a binomial tree to rank 0 and down again. A rank's parent is itself without its lowest set
// bit; its children are itself with one bit set below that one.
class TreeAllReduce final : public PhasedTask {
 public:
  TreeAllReduce(const Wire& wire, Tensor data, ReduceOp op)
      : PhasedTask(wire), data_(std::move(data)), op_(op) {
    const int lowest = wire.rank == 0 ? wire.size : wire.rank & -wire.rank;
    for (int bit = 1; bit < lowest && wire.rank + bit < wire.size; bit *= 2)
      children_.push_back(wire.rank + bit);
    parent_ = wire.rank - lowest;
  }

 private:
  enum class Phase { kFromChildren, kToParent, kFromParent, kToChildren, kDone };

  bool next_phase() override {
    const std::size_t bytes = data_.bytes();
    switch (std::exchange(phase_, static_cast<Phase>(static_cast<int>(phase_) + 1))) {
      case Phase::kFromChildren:
        received_ = workspace(bytes * children_.size());
        for (std::size_t i = 0; i < children_.size(); ++i)
          messages_.receive(wire_, received_.get() + i * bytes, bytes, children_[i]);
        return bytes > 0;
      case Phase::kToParent:
        reduce();
        if (wire_.rank != 0) messages_.send(wire_, bytes_of(data_), bytes, parent_);
        return true;
      case Phase::kFromParent:
        if (wire_.rank != 0) messages_.receive(wire_, bytes_of(data_), bytes, parent_);
        return true;
      case Phase::kToChildren:
        for (std::size_t i = children_.size(); i-- > 0;)  // the largest subtree first
          messages_.send(wire_, bytes_of(data_), bytes, children_[i]);
        return true;
      case Phase::kDone:
        break;
    }
    return false;
  }

  void reduce() const {
    std::vector<const std::byte*> sources{bytes_of(data_)};
    for (std::size_t i = 0; i < children_.size(); ++i)
      sources.push_back(received_.get() + i * data_.bytes());
    reduce_in_order(data_.dtype(), op_, sources, bytes_of(data_),
                    static_cast<std::size_t>(data_.elements()));
  }

  Tensor data_;
  ReduceOp op_;
  std::vector<int> children_;
  int parent_ = 0;
  Phase phase_ = Phase::kFromChildren;
  Buffer received_;
};

}  // namespace

std::unique_ptr<Task> make_bruck_all_reduce(const Wire& wire, Tensor data, ReduceOp op) {
  return std::make_unique<BruckAllReduce>(wire, std::move(data), op);
}

std::unique_ptr<Task> make_tree_all_reduce(const Wire& wire, Tensor data, ReduceOp op) {
  return std::make_unique<TreeAllReduce>(wire, std::move(data), op);
}

std::unique_ptr<Task> make_bruck_all_gather(const Wire& wire, Tensor input, Tensor output) {
  return std::make_unique<BruckAllGather>(wire, std::move(input), std::move(output));
}

}  // namespace trireme
