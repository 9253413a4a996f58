// Collectives along the tiers of the network (tier_plan.h), for any placement of the ranks.
//
// A reduction goes up: the ranks of a block give their contributions for a part to the rank that
// represents the part there. That rank reduces them to the largest whole subtrees of T(size) that
// lie in the block, and gives these partial results to the representative in the next tier, until
// the owner of the part has T(size). A gather is the way down, from the owner to all ranks. An
// all-reduce is both. So what crosses the links above a block is one partial result for each whole
// subtree in it, and one copy of what it receives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/collectives/segmented_task.h"
#include "comm/collectives/subtree_sum.h"
#include "comm/collectives/tier_legs.h"
#include "comm/collectives/tier_plan.h"

namespace trireme {

class TieredTask : public SegmentedTask {
 protected:
  TieredTask(TransportPtr transport, DType dtype, ReduceOp op);

  const TierPlan& tiers() const { return *tiers_; }
  // Hops of a reduction, and of a gather.
  int hops_up() const { return tiers_->sums().hops(); }
  int hops_down() const { return tiers_->hops(); }
  std::size_t element() const { return size_of(dtype_); }
  std::size_t partial_width() const { return size_of(partial_type_); }

  // Elements of a part in a segment. All ranges are in the tensor of all parts.
  virtual Range range(int part, std::size_t segment) const = 0;
  // The tensor of all parts: what is reduced, or where the parts are gathered.
  virtual std::byte* whole() const = 0;
  // Where the owner's result goes.
  virtual std::byte* result(int part, std::size_t segment) const {
    return at(range(part, segment).begin);
  }
  std::byte* at(std::size_t index) const { return whole() + index * element(); }

  // plan() calls both: which parts there are, and how `count` elements of all parts together, of
  // `width` bytes in all, are cut into segments of `length` for so many stages.
  void use_parts(TierParts parts);
  Pipeline pipeline(std::size_t count, std::size_t width, int stages, std::size_t& length);

  // Stage 0 to hops_up() - 1 of a reduction: brings partial results to the next tier.
  void send_up(std::size_t segment, int hop);
  // The stage after the last hop: the owner completes its parts.
  void finish_up(std::size_t segment);
  // The stages of a gather, from the highest hop on: brings the parts that this rank represents in
  // the tier above the hop to the blocks below.
  void send_down(std::size_t segment, int hop);
  void finish_down(std::size_t segment);

 private:
  struct Unpack {
    Buffer data;
    std::span<const int> parts;
  };
  // What a segment has under way.
  struct Slot {
    Buffer in;   // from the blocks below
    Buffer out;  // partial results of this rank's block: by leg above, then kept
    const std::byte* kept = nullptr;  // in `out`
    std::vector<Buffer> packed;       // sent
    std::vector<Unpack> unpack;       // received
  };
  // Parts that go together in the tensor's type: neighbours, or others, which are then packed.
  struct Message {
    std::span<const int> parts;
    bool packed = false;
  };
  class GivenValues;

  const Hop& hop_up(int hop) const { return up_[static_cast<std::size_t>(hop)]; }
  const Hop& hop_down(int hop) const { return down_[static_cast<std::size_t>(hop)]; }
  DType type_of(const Subtree& subtree) const {
    return subtree.is_single(tiers_->tree()) ? dtype_ : partial_type_;
  }
  std::size_t bytes_of_value(const Subtree& subtree, std::size_t count) const;
  std::size_t bytes_up(int part, std::size_t segment, int hop, int block) const;
  std::size_t bytes_up(const Leg& leg, std::size_t segment, int hop) const;
  std::size_t elements(std::span<const int> parts, std::size_t segment) const;

  std::vector<Message> messages_of(std::span<const int> parts, std::size_t segment) const;
  void receive_from_below(std::size_t segment, int hop);
  void send_parts(std::size_t segment, const Leg& leg);
  void receive_parts(std::size_t segment, const Leg& leg);
  Buffer packed(std::span<const int> parts, std::size_t segment);
  void unpack(std::size_t segment);
  Buffer reduce_into_legs(std::size_t segment, int hop);

  DType dtype_, partial_type_;
  std::shared_ptr<const TierPlan> tiers_;
  SubtreeSum sum_;
  TierParts parts_;
  std::vector<Hop> up_, down_;  // the same where all blocks add something up
  std::vector<Slot> slots_;     // by segment
};

}  // namespace trireme
