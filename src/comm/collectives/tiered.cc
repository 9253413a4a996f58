// Collectives along the tiers of the network (tier_plan.h), for any placement of the ranks.
//
// A reduction goes up: the ranks of a block give their contributions for a part to the rank that
// represents the part there. That rank reduces them to the largest whole subtrees of T(size) that
// lie in the block, and gives these partial results to the representative in the next tier, until
// the owner of the part has T(size). A gather is the way down, from the owner to all ranks. An
// all-reduce is both. So what crosses the links above a block is one partial result for each whole
// subtree in it, and one copy of what it receives.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trireme/comm/reduce.h"

#include "collectives.h"
#include "segmented_task.h"
#include "tier_plan.h"

namespace trireme {
namespace {

// The parts that travel between this rank and another one.
struct Leg {
  int peer;
  std::vector<int> parts;  // in rising order
  int block = 0;           // below, whose contribution goes up
};

// What this rank does in a hop. On the way down the same legs are used the other way round.
struct Hop {
  std::vector<Leg> above;  // to the ranks that represent parts in the tier above
  std::vector<Leg> below;  // from the ranks that represent parts in the other blocks below
  // The parts that this rank represents in the tier above, and so in its own block below.
  std::vector<int> kept;
  // By part that this rank represents below: the leg above, or -1 if it is kept.
  std::vector<int> leg_above;
  // By kept part and block below: the leg that it comes from, or -1 for this rank's own block.
  std::vector<int> leg_below;
};

class TieredTask : public SegmentedTask {
 protected:
  TieredTask(TransportPtr transport, DType dtype, ReduceOp op)
      : SegmentedTask(std::move(transport)),
        op_(op),
        dtype_(dtype),
        partial_type_(partial_type(op, dtype)),
        tiers_(tier_plan_of(this->transport().blocks(), size())) {}

  int hops() const { return tiers_->hops(); }
  const TierPlan& tiers() const { return *tiers_; }
  std::size_t element() const { return size_of(dtype_); }
  std::size_t partial_width() const { return size_of(partial_type_); }

  // Elements of a part in a segment. All ranges are in the tensor of all parts.
  virtual Range range(int part, std::size_t segment) const = 0;
  // That tensor: what is reduced, or where the parts are gathered.
  virtual std::byte* whole() const = 0;
  // Where the owner's result goes.
  virtual std::byte* result(int part, std::size_t segment) const {
    return at(range(part, segment).begin);
  }
  std::byte* at(std::size_t index) const { return whole() + index * element(); }

  void use_parts(TierParts parts) {
    parts_ = std::move(parts);
    std::vector<int> held(parts_->size());
    for (std::size_t i = 0; i < held.size(); ++i) held[i] = static_cast<int>(i);
    for (int hop = 0; hop < hops(); ++hop) {
      legs_.push_back(find_legs(hop, held));
      held = legs_.back().kept;
    }
  }

  // Cuts `count` elements of all parts together, of `width` bytes in all, for so many stages.
  Pipeline pipeline(std::size_t count, std::size_t width, int stages, std::size_t& length) {
    Pipeline result{.segments = 1, .stages = stages, .stride = 2, .skew = 1};
    // Segments of several messages at once, which shall each be worth their cost. The number is the
    // same on all ranks.
    std::size_t messages = 1;
    for (int hop = 0; hop < hops(); ++hop) {
      messages = std::max(messages, tiers_->children(hop + 1, 0).size());
    }
    length = segment_length(count, width, messages * kWorthwhileBytes,
                            transport().segment_bytes() / result.window());
    result.segments = segments_of(count, length);
    slots_.resize(result.segments);
    return result;
  }

  // Stage 0 to hops() - 1 of a reduction: brings partial results to the next tier.
  void send_up(std::size_t segment, int hop) {
    Slot& slot = slots_[segment];
    const Hop& own = legs_[index(hop)];
    Buffer out;
    if (hop > 0) {
      out = reduce_into_legs(segment, hop);
    }
    std::size_t bytes = 0;
    for (const Leg& leg : own.below) bytes += bytes_up(leg, segment, hop);
    slot.in = bytes > 0 ? transport().workspace(bytes) : Buffer();
    std::byte* to = slot.in.get();
    for (const Leg& leg : own.below) {
      if (hop > 0) {
        transport().receive(to, bytes_up(leg, segment, hop), leg.peer);
      } else {
        in_messages(segment, leg.parts, [&, into = to](std::span<const int> run, bool) mutable {
          const std::size_t length = elements(run, segment) * element();
          transport().receive(into, length, leg.peer);
          into += length;
        });
      }
      to += bytes_up(leg, segment, hop);
    }
    const std::byte* from = out.get();
    slot.packed.clear();
    for (const Leg& leg : own.above) {
      if (hop > 0) {
        const std::size_t length = bytes_up(leg, segment, hop);
        transport().send(from, length, leg.peer);
        from += length;
      } else {
        send_parts(segment, leg);
      }
    }
    slot.out = std::move(out);
    slot.kept = from;
  }

  // The stage after the last hop: the owner completes its parts.
  void finish_up(std::size_t segment) {
    for_each_kept(segment, hops() - 1, [&](std::size_t at, const std::vector<Source>& sources) {
      const int part = legs_.back().kept[at];
      const std::size_t count = range(part, segment).size();
      if (count == 0) return;
      const Subtree root = tiers_->subtrees(hops(), 0).front();
      evaluate(root, sources, result(part, segment), dtype_, count, 0);
    });
    slots_[segment] = {};
  }

  // Brings the parts that this rank represents in the tier above the hop to the blocks below.
  void send_down(std::size_t segment, int hop) {
    unpack(segment);
    Slot& slot = slots_[segment];
    const Hop& own = legs_[index(hop)];
    for (const Leg& leg : own.above) {
      in_messages(segment, leg.parts, [&](std::span<const int> run, bool packed) {
        const std::size_t bytes = elements(run, segment) * element();
        std::byte* to = at(range(run.front(), segment).begin);
        if (packed && bytes > 0) {
          slot.unpack.push_back({transport().workspace(bytes), run});
          to = slot.unpack.back().data.get();
        }
        transport().receive(to, bytes, leg.peer);
      });
    }
    for (const Leg& leg : own.below) send_parts(segment, leg);
  }

  void finish_down(std::size_t segment) {
    unpack(segment);
    slots_[segment] = {};
  }

 private:
  struct Source {
    Subtree subtree;
    const std::byte* data;
    DType type;
  };
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

  static std::size_t index(int value) { return static_cast<std::size_t>(value); }

  DType type_of(const Subtree& subtree) const {
    return subtree.is_single(tiers_->tree()) ? dtype_ : partial_type_;
  }
  // What a subtree's value of so many elements takes up. Values of a wider type may follow, which
  // must be aligned.
  std::size_t bytes_of_value(const Subtree& subtree, std::size_t count) const {
    const std::size_t bytes = count * size_of(type_of(subtree)), unit = partial_width();
    return partial_type_ == dtype_ ? bytes : (bytes + unit - 1) / unit * unit;
  }
  // What a block gives up for a part in a hop. In the first hop that is the tensor's own elements.
  std::size_t bytes_up(int part, std::size_t segment, int hop, int block) const {
    const std::size_t count = range(part, segment).size();
    if (hop == 0) return count * element();
    std::size_t bytes = 0;
    for (const Subtree& subtree : tiers_->subtrees(hop, block)) {
      bytes += bytes_of_value(subtree, count);
    }
    return bytes;
  }
  std::size_t bytes_up(const Leg& leg, std::size_t segment, int hop) const {
    std::size_t bytes = 0;
    for (const int part : leg.parts) bytes += bytes_up(part, segment, hop, leg.block);
    return bytes;
  }
  std::size_t elements(std::span<const int> parts, std::size_t segment) const {
    std::size_t count = 0;
    for (const int part : parts) count += range(part, segment).size();
    return count;
  }

  Hop find_legs(int hop, const std::vector<int>& held) const {
    Hop result;
    const int own = tiers_->block(hop, rank()), parent = tiers_->block(hop + 1, rank());
    const std::vector<int>& blocks = tiers_->children(hop + 1, parent);
    std::map<int, int> above, below;  // by peer, who is in one block
    const auto leg = [](std::vector<Leg>& legs, std::map<int, int>& known, int peer, int block) {
      const auto [entry, is_new] = known.emplace(peer, static_cast<int>(legs.size()));
      if (is_new) legs.push_back({peer, {}, block});
      return entry->second;
    };
    for (const int part : held) {
      const TierPart& one = (*parts_)[index(part)];
      const int peer = tiers_->representative(hop + 1, parent, one);
      if (peer != rank()) {
        const int number = leg(result.above, above, peer, own);
        result.above[index(number)].parts.push_back(part);
        result.leg_above.push_back(number);
        continue;
      }
      result.leg_above.push_back(-1);
      result.kept.push_back(part);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i] == own) {
          result.leg_below.push_back(-1);
          continue;
        }
        const int number =
            leg(result.below, below, tiers_->representative(hop, blocks[i], one), blocks[i]);
        result.below[index(number)].parts.push_back(part);
        result.leg_below.push_back(number);
      }
    }
    return result;
  }

  // Calls visit(parts, packed) for each message in which the parts go in the tensor's type: for
  // each run of neighbours if these are long enough, else once for all of them, which are then
  // packed.
  template <class Visit>
  void in_messages(std::size_t segment, std::span<const int> parts, Visit visit) const {
    std::vector<std::size_t> ends;  // of runs
    std::size_t count = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Range own = range(parts[i], segment);
      count += own.size();
      if (i + 1 == parts.size() || range(parts[i + 1], segment).begin != own.end) {
        ends.push_back(i + 1);
      }
    }
    if (ends.size() > 1 && count * element() < ends.size() * kWorthwhileBytes) {
      visit(parts, true);
      return;
    }
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      visit(parts.subspan(begin, end - begin), false);
      begin = end;
    }
  }

  // Sends parts of the tensor.
  void send_parts(std::size_t segment, const Leg& leg) {
    in_messages(segment, leg.parts, [&](std::span<const int> run, bool packed) {
      const std::size_t bytes = elements(run, segment) * element();
      const std::byte* from = at(range(run.front(), segment).begin);
      if (packed && bytes > 0) {
        Buffer data = transport().workspace(bytes);
        std::byte* to = data.get();
        for (const int part : run) {
          const Range one = range(part, segment);
          transport().copy(to, at(one.begin), one.size() * element());
          to += one.size() * element();
        }
        from = data.get();
        slots_[segment].packed.push_back(std::move(data));
      }
      transport().send(from, bytes, leg.peer);
    });
  }

  void unpack(std::size_t segment) {
    Slot& slot = slots_[segment];
    for (const Unpack& one : slot.unpack) {
      const std::byte* from = one.data.get();
      for (const int part : one.parts) {
        const Range to = range(part, segment);
        transport().copy(at(to.begin), from, to.size() * element());
        from += to.size() * element();
      }
    }
    slot.unpack.clear();
    slot.packed.clear();
  }

  // Calls visit(i, sources) for each part i of those that were kept in the hop: what the blocks
  // below have given for it, in the order of T(size).
  template <class Visit>
  void for_each_kept(std::size_t segment, int hop, Visit visit) {
    const Slot& slot = slots_[segment];
    const Hop& own = legs_[index(hop)];
    const int parent = tiers_->block(hop + 1, rank());
    const std::vector<int>& blocks = tiers_->children(hop + 1, parent);
    std::vector<const std::byte*> next;  // by leg
    const std::byte* in = slot.in.get();
    for (const Leg& leg : own.below) {
      next.push_back(in);
      in += bytes_up(leg, segment, hop);
    }
    const std::byte* kept = slot.kept;
    // Where each source comes from is the same for all parts.
    struct Origin {
      std::size_t source, block;  // the source's place in the order of T(size)
    };
    std::vector<Source> sources;
    for (const int block : blocks) {
      for (const Subtree& subtree : tiers_->subtrees(hop, block)) {
        sources.push_back({subtree, nullptr, type_of(subtree)});
      }
    }
    std::ranges::sort(sources, {}, [](const Source& one) { return one.subtree.order(); });
    std::vector<Origin> origins;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (const Subtree& subtree : tiers_->subtrees(hop, blocks[i])) {
        const auto place = std::ranges::find(sources, subtree, &Source::subtree);
        origins.push_back({static_cast<std::size_t>(place - sources.begin()), i});
      }
    }
    for (std::size_t at = 0; at < own.kept.size(); ++at) {
      const Range whole_range = range(own.kept[at], segment);
      std::size_t origin = 0;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const int leg = own.leg_below[at * blocks.size() + i];
        const bool in_tensor = leg < 0 && hop == 0;
        const std::byte*& data = leg < 0 ? kept : next[index(leg)];
        for (; origin < origins.size() && origins[origin].block == i; ++origin) {
          Source& source = sources[origins[origin].source];
          source.data = in_tensor ? this->at(whole_range.begin) : data;
          if (in_tensor) continue;
          data += hop == 0 ? whole_range.size() * element()
                           : bytes_of_value(source.subtree, whole_range.size());
        }
      }
      visit(at, sources);
    }
  }

  // Reduces what the last hop has brought, in the order in which the legs of this hop need it.
  Buffer reduce_into_legs(std::size_t segment, int hop) {
    const Hop& own = legs_[index(hop)];
    const int block = tiers_->block(hop, rank());
    const std::vector<int>& held = legs_[index(hop - 1)].kept;
    std::size_t bytes = 0;
    for (const int part : held) bytes += bytes_up(part, segment, hop, block);
    if (bytes == 0) return {};
    Buffer out = transport().workspace(bytes);
    std::vector<std::byte*> next;  // by leg, then what is kept
    std::byte* to = out.get();
    for (const Leg& leg : own.above) {
      next.push_back(to);
      to += bytes_up(leg, segment, hop);
    }
    next.push_back(to);
    for_each_kept(segment, hop - 1, [&](std::size_t at, const std::vector<Source>& sources) {
      const int leg = own.leg_above[at];
      std::byte*& target = leg < 0 ? next.back() : next[index(leg)];
      const std::size_t count = range(held[at], segment).size();
      if (count == 0) return;
      std::size_t first = 0;
      for (const Subtree& subtree : tiers_->subtrees(hop, block)) {
        const std::size_t last = end_of(subtree, sources, first);
        evaluate(subtree, {sources.data() + first, last - first}, target, type_of(subtree), count,
                 0);
        first = last;
        target += bytes_of_value(subtree, count);
      }
    });
    return out;
  }

  // Sources are in order and do not overlap, so those in a subtree follow one another.
  static std::size_t end_of(const Subtree& subtree, std::span<const Source> sources,
                            std::size_t first) {
    const long end =
        subtree.level < 0 ? subtree.order() + 1 : 2L * ((long{subtree.index} + 1) << subtree.level);
    while (first < sources.size() && sources[first].subtree.order() < end) ++first;
    return first;
  }

  // Whether one pass over all sources adds them as the subtree demands.
  bool is_one_pass(std::span<const Source> sources) const {
    const SumTree& tree = tiers_->tree();
    const Source& first = sources.front();
    const bool same_type = std::ranges::all_of(
        sources, [&](const Source& source) { return source.type == first.type; });
    const bool singles = std::ranges::all_of(
        sources, [&](const Source& source) { return source.subtree.is_single(tree); });
    const bool same_level = std::ranges::all_of(
        sources, [&](const Source& source) { return source.subtree.level == first.subtree.level; });
    return same_type && (singles || same_level);
  }

  // Reduces the sources of a subtree to its value.
  void evaluate(const Subtree& subtree, std::span<const Source> sources, std::byte* out,
                DType out_type, std::size_t count, std::size_t depth) {
    if (sources.size() == 1 && sources[0].type == out_type) {
      if (sources[0].data != out) transport().copy(out, sources[0].data, count * size_of(out_type));
      return;
    }
    if (is_one_pass(sources)) {
      std::vector<const std::byte*> data;
      for (const Source& source : sources) data.push_back(source.data);
      transport().reduce(op_, sources[0].type, data, out_type, out, count);
      return;
    }
    const Subtree left = subtree.left(tiers_->tree()), right = subtree.right(tiers_->tree());
    const std::size_t middle = end_of(left, sources, 0);
    const std::array<const std::byte*, 2> halves{
        half(left, sources.first(middle), count, depth, 0),
        half(right, sources.subspan(middle), count, depth, 1)};
    transport().reduce(op_, partial_type_, halves, out_type, out, count);
  }
  const std::byte* half(const Subtree& subtree, std::span<const Source> sources, std::size_t count,
                        std::size_t depth, std::size_t side) {
    if (sources.size() == 1 && sources[0].type == partial_type_) return sources[0].data;
    const std::size_t number = 2 * depth + side;
    if (scratch_.size() <= number) scratch_.resize(number + 1);
    auto& [buffer, bytes] = scratch_[number];
    if (bytes < count * partial_width()) {
      bytes = count * partial_width();
      buffer = transport().workspace(bytes);
    }
    std::byte* const out = buffer.get();
    evaluate(subtree, sources, out, partial_type_, count, depth + 1);
    return out;
  }

  ReduceOp op_;
  DType dtype_, partial_type_;
  std::shared_ptr<const TierPlan> tiers_;
  TierParts parts_;
  std::vector<Hop> legs_;
  std::vector<Slot> slots_;  // by segment
  std::vector<std::pair<Buffer, std::size_t>> scratch_;
};

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
    return pipeline(count(), element(), 2 * hops() + 1, length_);
  }
  void run(std::size_t segment, int stage) override {
    if (stage < hops()) return send_up(segment, stage);
    if (stage == hops()) finish_up(segment);
    if (stage < 2 * hops()) return send_down(segment, 2 * hops() - 1 - stage);
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
  void run(std::size_t segment, int stage) override {
    if (stage < hops()) return send_up(segment, stage);
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
  void run(std::size_t segment, int stage) override {
    if (stage == 0) {
      const Range own = range(rank(), segment);
      const std::byte* from = bytes_of(input_) + segment * length_ * element();
      if (at(own.begin) != from) transport().copy(at(own.begin), from, own.size() * element());
    }
    if (stage < hops()) return send_down(segment, hops() - 1 - stage);
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
    return pipeline(count(), element(), hops() + 1, length_);
  }
  void run(std::size_t segment, int stage) override {
    if (stage < hops()) return send_down(segment, hops() - 1 - stage);
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
