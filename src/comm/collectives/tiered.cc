// The collectives that follow the tiers of the network (tiered_task.h).
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/collectives/tiered_task.h"

namespace trireme {
namespace {

class TieredAllReduce final : public TieredTask {
 public:
  TieredAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : TieredTask(std::move(transport), data.dtype(), op), data_(std::move(data)) {}

 private:
  Pipeline plan() override {
    if (size() == 1) return {};
    auto parts = tiers().parts_in_order(partial_width(), element());
    parts_ = static_cast<int>(parts->size());
    use_parts(std::move(parts));
    return pipeline(count(), element(), hops_up() + hops_down() + 1, length_);
  }
  void run(std::size_t segment, int stage) override {
    if (stage < hops_up()) return send_up(segment, stage);
    if (stage == hops_up()) finish_up(segment);
    const int hop = hops_up() + hops_down() - 1 - stage;
    if (hop >= 0) return send_down(segment, hop);
    finish_down(segment);
  }
  Range range(int part, std::size_t segment) const override {
    const std::size_t begin = segment * length_;
    return part_of({begin, std::min(begin + length_, count())}, part, parts_);
  }
  std::byte* whole() const override { return bytes_of(data_); }
  std::size_t count() const { return static_cast<std::size_t>(data_.elements()); }

  Tensor data_;
  int parts_ = 1;
  std::size_t length_ = 1;
};

// A part for each rank, of which a segment is the same slice of each.
class TieredParts : public TieredTask {
 protected:
  TieredParts(TransportPtr transport, Tensor input, Tensor output, std::size_t part, ReduceOp op)
      : TieredTask(std::move(transport), input.dtype(), op),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(part) {}

  Pipeline plan() override {
    use_parts(tiers().part_per_rank());
    return pipeline(part_, element() * static_cast<std::size_t>(size()), hops() + 1, length_);
  }
  virtual int hops() const = 0;
  Range range(int part, std::size_t segment) const override {
    const std::size_t begin = static_cast<std::size_t>(part) * part_;
    return {begin + segment * length_, begin + std::min((segment + 1) * length_, part_)};
  }

  Tensor input_, output_;
  std::size_t part_, length_ = 1;
};

class TieredReduceScatter final : public TieredParts {
 public:
  TieredReduceScatter(TransportPtr transport, Tensor input, Tensor output, ReduceOp op)
      : TieredParts(std::move(transport), std::move(input), output,
                    static_cast<std::size_t>(output.elements()), op) {}

 private:
  int hops() const override { return hops_up(); }
  void run(std::size_t segment, int stage) override {
    if (stage < hops_up()) return send_up(segment, stage);
    finish_up(segment);
  }
  std::byte* whole() const override { return bytes_of(input_); }
  std::byte* result(int, std::size_t segment) const override {
    return bytes_of(output_) + segment * length_ * element();
  }
};

class TieredAllGather final : public TieredParts {
 public:
  TieredAllGather(TransportPtr transport, Tensor input, Tensor output)
      : TieredParts(std::move(transport), input, std::move(output),
                    static_cast<std::size_t>(input.elements()), ReduceOp::kSum) {}

 private:
  int hops() const override { return hops_down(); }
  void run(std::size_t segment, int stage) override {
    if (stage == 0) {
      const Range own = range(rank(), segment);
      const std::byte* from = bytes_of(input_) + segment * length_ * element();
      if (at(own.begin) != from) transport().copy(at(own.begin), from, own.size() * element());
    }
    if (stage < hops_down()) return send_down(segment, hops_down() - 1 - stage);
    finish_down(segment);
  }
  std::byte* whole() const override { return bytes_of(output_); }
};

class TieredBroadcast final : public TieredTask {
 public:
  TieredBroadcast(TransportPtr transport, Tensor data, int root)
      : TieredTask(std::move(transport), data.dtype(), ReduceOp::kSum),
        data_(std::move(data)),
        root_(root) {}

 private:
  Pipeline plan() override {
    use_parts(std::make_shared<const std::vector<TierPart>>(1, tiers().part_of_owner(root_)));
    return pipeline(count(), element(), hops_down() + 1, length_);
  }
  void run(std::size_t segment, int stage) override {
    if (stage < hops_down()) return send_down(segment, hops_down() - 1 - stage);
    finish_down(segment);
  }
  Range range(int, std::size_t segment) const override {
    return {segment * length_, std::min((segment + 1) * length_, count())};
  }
  std::byte* whole() const override { return bytes_of(data_); }
  std::size_t count() const { return static_cast<std::size_t>(data_.elements()); }

  Tensor data_;
  int root_;
  std::size_t length_ = 1;
};

}  // namespace

std::unique_ptr<Task> make_tiered_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<TieredAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_tiered_reduce_scatter(TransportPtr transport, Tensor input,
                                                 Tensor output, ReduceOp op) {
  return std::make_unique<TieredReduceScatter>(std::move(transport), std::move(input),
                                               std::move(output), op);
}

std::unique_ptr<Task> make_tiered_all_gather(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<TieredAllGather>(std::move(transport), std::move(input),
                                           std::move(output));
}

std::unique_ptr<Task> make_tiered_broadcast(TransportPtr transport, Tensor data, int root) {
  return std::make_unique<TieredBroadcast>(std::move(transport), std::move(data), root);
}

}  // namespace trireme
