// Collectives around a ring of all ranks, in the order of the network (RankBlocks::in_order), so
// that it enters and leaves each block once. The reductions add in the order of the ring, not along
// T(size).
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/reduce.h"

#include "comm/collectives/collectives.h"
#include "comm/collectives/segmented_task.h"

namespace trireme {
namespace {

class RingTask : public SegmentedTask {
 protected:
  // Positions are in the order of the ring. The part of a position belongs to its rank.
  RingTask(TransportPtr transport, DType dtype, ReduceOp op)
      : SegmentedTask(std::move(transport)),
        op_(op),
        dtype_(dtype),
        partial_type_(partial_type(op, dtype)) {
    order_ = network_order();
    while (order_[static_cast<std::size_t>(position_)] != rank()) ++position_;
  }

  // Elements of a position's part in a segment, in the tensor of all parts.
  virtual Range range(int position, std::size_t segment) const = 0;
  virtual std::byte* whole() const = 0;
  virtual std::byte* result(std::size_t segment) const { return at(own_part(segment).begin); }

  std::size_t element() const { return size_of(dtype_); }
  std::byte* at(std::size_t index) const { return whole() + index * element(); }
  int rank_at(int position) const {
    return order_[static_cast<std::size_t>((position + size()) % size())];
  }
  int position() const { return position_; }
  Range own_part(std::size_t segment) const { return range(position_, segment); }
  int rounds() const { return size() - 1; }

  // The segments of a window go round abreast. The first ones of the next window begin when these
  // have ended, since they take over their workspace.
  Pipeline pipeline(std::size_t count, std::size_t width, int stages, std::size_t& length) {
    Pipeline result{
        .stages = stages, .skew = static_cast<std::size_t>(stages), .abreast = kRingSegments};
    length = segment_length(count, width,
                            static_cast<std::size_t>(size()) * transport().worthwhile_bytes(),
                            transport().segment_bytes() / result.window(), kRingSegments);
    result.segments = segments_of(count, length);
    if (result.segments > kRingSegments) {
      // Full windows of equal segments: the last ones would have nothing to overlap with.
      const std::size_t windows = (result.segments + kRingSegments - 1) / kRingSegments;
      length = (count + windows * kRingSegments - 1) / (windows * kRingSegments);
      result.segments = segments_of(count, length);
    }
    slots_.resize(result.segments);
    return result;
  }

  // Round 0 to size - 2 of a reduction: a partial result of each part moves on to the next rank.
  void reduce_round(std::size_t segment, int round) {
    Slot& slot = slots_[segment];
    if (round > 0) add_own(segment, round - 1);
    const Range give = part(-1 - round, segment), take = part(-2 - round, segment);
    Buffer& in = slot.buffers[static_cast<std::size_t>(round + 1) % 2];
    const std::size_t width = size_of(partial_type_);
    if (!in && take.size() > 0) in = transport().workspace((take.size() + 1) * width);
    const bool raw = round == 0;  // single contributions
    const std::size_t sent = raw ? element() : width;
    transport().receive(in.get(), take.size() * sent, rank_at(position_ - 1));
    transport().send(raw ? at(give.begin) : slot.buffers[static_cast<std::size_t>(round) % 2].get(),
                     give.size() * sent, rank_at(position_ + 1));
  }
  // Call it after the last round.
  void finish_reduction(std::size_t segment) {
    if (rounds() == 0) {
      const Range own = own_part(segment);
      if (result(segment) != at(own.begin)) {
        transport().copy(result(segment), at(own.begin), own.size() * element());
      }
      return;
    }
    add_own(segment, rounds() - 1);
    slots_[segment] = {};
  }
  // Round 0 to size - 2 of a gather: each part moves on to the next rank.
  void gather_round(std::size_t segment, int round) {
    const Range give = part(-round, segment), take = part(-1 - round, segment);
    transport().receive(at(take.begin), take.size() * element(), rank_at(position_ - 1));
    transport().send(at(give.begin), give.size() * element(), rank_at(position_ + 1));
  }

 private:
  struct Slot {
    std::array<Buffer, 2> buffers;  // one is sent while the other is received
    Buffer own;                     // widened
  };

  // The part of the position so many steps from this one.
  Range part(int step, std::size_t segment) const {
    return range((position_ + step + 2 * size()) % size(), segment);
  }
  // Adds this rank's contribution to what has arrived in a round.
  void add_own(std::size_t segment, int round) {
    Slot& slot = slots_[segment];
    const Range own = part(-2 - round, segment);
    if (own.size() == 0) return;
    std::byte* const in = slot.buffers[static_cast<std::size_t>(round + 1) % 2].get();
    const bool last = round + 1 == rounds();
    const DType out_type = last ? dtype_ : partial_type_;
    std::byte* out = last ? result(segment) : in;
    const std::byte* mine = at(own.begin);
    const bool raw = round == 0;
    if (raw && out_type != dtype_) {
      // The sum is wider than what has arrived.
      out = own_buffer(slot, own.size());
    } else if (!raw && partial_type_ != dtype_) {
      std::byte* const widened = own_buffer(slot, own.size());
      transport().reduce(op_, dtype_, std::array{mine}, partial_type_, widened, own.size());
      mine = widened;
    }
    transport().reduce(op_, raw ? dtype_ : partial_type_, std::array<const std::byte*, 2>{in, mine},
                       out_type, out, own.size());
    if (out == slot.own.get()) {
      std::swap(slot.own, slot.buffers[static_cast<std::size_t>(round + 1) % 2]);
    }
  }
  std::byte* own_buffer(Slot& slot, std::size_t count) {
    // Parts differ by one element.
    if (!slot.own) slot.own = transport().workspace((count + 2) * size_of(partial_type_));
    return slot.own.get();
  }

  ReduceOp op_;
  DType dtype_, partial_type_;
  std::vector<int> order_;  // ranks by position
  int position_ = 0;
  std::vector<Slot> slots_;  // by segment
};

class RingAllReduce final : public RingTask {
 public:
  RingAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : RingTask(std::move(transport), data.dtype(), op), data_(std::move(data)) {}

 private:
  Pipeline plan() override {
    if (size() == 1) return {};
    return pipeline(count(), element(), 2 * rounds() + 1, length_);
  }
  void run(std::size_t segment, int stage) override {
    if (stage < rounds()) return reduce_round(segment, stage);
    if (stage == rounds()) finish_reduction(segment);
    if (stage < 2 * rounds()) gather_round(segment, stage - rounds());
  }
  Range range(int position, std::size_t segment) const override {
    const std::size_t begin = segment * length_;
    return part_of({begin, std::min(begin + length_, count())}, position, size());
  }
  std::byte* whole() const override { return bytes_of(data_); }
  std::size_t count() const { return static_cast<std::size_t>(data_.elements()); }

  Tensor data_;
  std::size_t length_ = 1;
};

// A part for each rank, of which a segment is the same slice of each.
class RingParts : public RingTask {
 protected:
  RingParts(TransportPtr transport, Tensor input, Tensor output, std::size_t part, ReduceOp op)
      : RingTask(std::move(transport), input.dtype(), op),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(part) {}

  Pipeline plan() override {
    return pipeline(part_, element() * static_cast<std::size_t>(size()), rounds() + 1, length_);
  }
  Range range(int position, std::size_t segment) const override {
    const std::size_t begin = static_cast<std::size_t>(rank_at(position)) * part_;
    return {begin + segment * length_, begin + std::min((segment + 1) * length_, part_)};
  }

  Tensor input_, output_;
  std::size_t part_, length_ = 1;
};

class RingReduceScatter final : public RingParts {
 public:
  RingReduceScatter(TransportPtr transport, Tensor input, Tensor output, ReduceOp op)
      : RingParts(std::move(transport), std::move(input), output,
                  static_cast<std::size_t>(output.elements()), op) {}

 private:
  void run(std::size_t segment, int stage) override {
    if (stage < rounds()) return reduce_round(segment, stage);
    finish_reduction(segment);
  }
  std::byte* whole() const override { return bytes_of(input_); }
  std::byte* result(std::size_t segment) const override {
    return bytes_of(output_) + segment * length_ * element();
  }
};

class RingAllGather final : public RingParts {
 public:
  RingAllGather(TransportPtr transport, Tensor input, Tensor output)
      : RingParts(std::move(transport), input, std::move(output),
                  static_cast<std::size_t>(input.elements()), ReduceOp::kSum) {}

 private:
  // Nothing is reduced, so whole parts keep every link of the ring busy in every round, and several
  // small messages would only queue up before each other's handshakes.
  Pipeline plan() override {
    length_ = std::max<std::size_t>(std::min(part_, transport().segment_bytes() / element()), 1);
    return {.segments = segments_of(part_, length_), .stages = rounds() + 1};
  }
  void run(std::size_t segment, int stage) override {
    if (stage == 0) {
      const Range own = own_part(segment);
      const std::byte* from = bytes_of(input_) + segment * length_ * element();
      if (at(own.begin) != from) transport().copy(at(own.begin), from, own.size() * element());
    }
    if (stage < rounds()) gather_round(segment, stage);
  }
  std::byte* whole() const override { return bytes_of(output_); }
};

}  // namespace

std::unique_ptr<Task> make_ring_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<RingAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_ring_reduce_scatter(TransportPtr transport, Tensor input, Tensor output,
                                               ReduceOp op) {
  return std::make_unique<RingReduceScatter>(std::move(transport), std::move(input),
                                             std::move(output), op);
}

std::unique_ptr<Task> make_ring_all_gather(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<RingAllGather>(std::move(transport), std::move(input), std::move(output));
}

}  // namespace trireme
