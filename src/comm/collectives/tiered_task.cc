#include "comm/collectives/tiered_task.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/reduce.h"

namespace trireme {

// What the blocks below have given in a hop for the parts that this rank kept there.
class TieredTask::GivenValues {
 public:
  GivenValues(const TieredTask& task, std::size_t segment, int hop);

  // Returns the values for the next of the parts, in the order of T(size).
  std::span<const SubtreeValue> next();

 private:
  // The block that gives a value, whose place in the order of T(size) is `value`. It is the same
  // for all parts.
  struct Origin {
    std::size_t value, block;
  };

  const TieredTask& task_;
  std::size_t segment_;
  int hop_;
  const Hop& own_;
  std::size_t part_ = 0;  // the next one's place among those that were kept
  std::size_t blocks_;    // below
  std::vector<Origin> origins_;
  std::vector<SubtreeValue> values_;
  std::vector<const std::byte*> from_legs_;  // the next values, by leg
  const std::byte* from_kept_;               // and those of this rank's own block
};

TieredTask::GivenValues::GivenValues(const TieredTask& task, std::size_t segment, int hop)
    : task_(task),
      segment_(segment),
      hop_(hop),
      own_(task.hop_up(hop)),
      from_kept_(task.slots_[segment].kept) {
  const TierPlan& plan = task.tiers_->sums();
  const std::vector<int>& blocks = plan.children(hop + 1, plan.block(hop + 1, task.rank()));
  blocks_ = blocks.size();
  for (const int block : blocks) {
    for (const Subtree& subtree : plan.subtrees(hop, block)) {
      values_.push_back({subtree, nullptr, task.type_of(subtree)});
    }
  }
  std::ranges::sort(values_, {}, [](const SubtreeValue& one) { return one.subtree.order(); });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const Subtree& subtree : plan.subtrees(hop, blocks[i])) {
      const auto place = std::ranges::find(values_, subtree, &SubtreeValue::subtree);
      origins_.push_back({static_cast<std::size_t>(place - values_.begin()), i});
    }
  }
  const std::byte* in = task.slots_[segment].in.get();
  for (const Leg& leg : own_.below) {
    from_legs_.push_back(in);
    in += task.bytes_up(leg, segment, hop);
  }
}

std::span<const SubtreeValue> TieredTask::GivenValues::next() {
  const Range part = task_.range(own_.kept[part_], segment_);
  const std::size_t contribution = part.size() * task_.element();
  for (const auto& [number, block] : origins_) {
    SubtreeValue& value = values_[number];
    const int leg = own_.leg_below[part_ * blocks_ + block];
    if (leg < 0 && hop_ == 0) {
      value.data = task_.at(part.begin);
      continue;
    }
    const std::byte*& data = leg < 0 ? from_kept_ : from_legs_[static_cast<std::size_t>(leg)];
    value.data = data;
    data += hop_ == 0 ? contribution : task_.bytes_of_value(value.subtree, part.size());
  }
  ++part_;
  return values_;
}

TieredTask::TieredTask(TransportPtr transport, DType dtype, ReduceOp op)
    : SegmentedTask(std::move(transport)),
      dtype_(dtype),
      partial_type_(partial_type(op, dtype)),
      tiers_(tier_plan_of(this->transport().blocks(), size())),
      sum_(this->transport(), tiers_->tree(), op, partial_type_) {}

void TieredTask::use_parts(TierParts parts) {
  parts_ = std::move(parts);
  down_ = find_legs(*tiers_, *parts_, rank());
  up_ = &tiers_->sums() == tiers_.get() ? down_ : find_legs(tiers_->sums(), *parts_, rank());
}

Pipeline TieredTask::pipeline(std::size_t count, std::size_t width, int stages,
                              std::size_t& length) {
  Pipeline result{.segments = 1, .stages = stages, .stride = 2, .skew = 1};
  // Segments of several messages at once, which shall each be worth their cost. The number is the
  // same on all ranks.
  std::size_t messages = 1;
  for (const TierPlan* plan : {tiers_.get(), &tiers_->sums()}) {
    for (int tier = 1; tier <= plan->hops(); ++tier) {
      messages = std::max(messages, plan->children(tier, 0).size());
    }
  }
  length = segment_length(count, width, messages * transport().worthwhile_bytes(),
                          transport().segment_bytes() / result.window());
  result.segments = segments_of(count, length);
  slots_.resize(result.segments);
  return result;
}

void TieredTask::send_up(std::size_t segment, int hop) {
  // What the last hop has brought is used before the messages of this one take its place.
  Buffer out = hop > 0 ? reduce_into_legs(segment, hop) : Buffer();
  receive_from_below(segment, hop);
  Slot& slot = slots_[segment];
  slot.packed.clear();
  const std::byte* from = out.get();
  for (const Leg& leg : hop_up(hop).above) {
    if (hop == 0) {
      send_parts(segment, leg);
      continue;
    }
    const std::size_t bytes = bytes_up(leg, segment, hop);
    transport().send(from, bytes, leg.peer);
    from += bytes;
  }
  slot.out = std::move(out);
  slot.kept = from;
}

void TieredTask::receive_from_below(std::size_t segment, int hop) {
  Slot& slot = slots_[segment];
  const std::vector<Leg>& legs = hop_up(hop).below;
  std::size_t all = 0;
  for (const Leg& leg : legs) all += bytes_up(leg, segment, hop);
  slot.in = all > 0 ? transport().workspace(all) : Buffer();
  std::byte* to = slot.in.get();
  const auto receive = [&](std::size_t bytes, int peer) {
    transport().receive(to, bytes, peer);
    to += bytes;
  };
  for (const Leg& leg : legs) {
    if (hop > 0) {
      receive(bytes_up(leg, segment, hop), leg.peer);
      continue;
    }
    for (const Message& message : messages_of(leg.parts, segment)) {
      receive(elements(message.parts, segment) * element(), leg.peer);
    }
  }
}

void TieredTask::finish_up(std::size_t segment) {
  const Subtree root = tiers_->sums().subtrees(hops_up(), 0).front();
  GivenValues given(*this, segment, hops_up() - 1);
  for (const int part : up_.back().kept) {
    const std::span<const SubtreeValue> values = given.next();
    const std::size_t count = range(part, segment).size();
    if (count > 0) sum_.evaluate(root, values, result(part, segment), dtype_, count);
  }
  slots_[segment] = {};
}

void TieredTask::send_down(std::size_t segment, int hop) {
  unpack(segment);
  for (const Leg& leg : hop_down(hop).above) receive_parts(segment, leg);
  for (const Leg& leg : hop_down(hop).below) send_parts(segment, leg);
}

void TieredTask::finish_down(std::size_t segment) {
  unpack(segment);
  slots_[segment] = {};
}

// What a subtree's value of so many elements takes up. Values of a wider type may follow, which
// must be aligned.
std::size_t TieredTask::bytes_of_value(const Subtree& subtree, std::size_t count) const {
  const std::size_t bytes = count * size_of(type_of(subtree)), unit = partial_width();
  return partial_type_ == dtype_ ? bytes : (bytes + unit - 1) / unit * unit;
}

// What a block gives up for a part in a hop. In the first hop that is the tensor's own elements.
std::size_t TieredTask::bytes_up(int part, std::size_t segment, int hop, int block) const {
  const std::size_t count = range(part, segment).size();
  if (hop == 0) return count * element();
  std::size_t bytes = 0;
  for (const Subtree& subtree : tiers_->sums().subtrees(hop, block)) {
    bytes += bytes_of_value(subtree, count);
  }
  return bytes;
}

std::size_t TieredTask::bytes_up(const Leg& leg, std::size_t segment, int hop) const {
  std::size_t bytes = 0;
  for (const int part : leg.parts) bytes += bytes_up(part, segment, hop, leg.block);
  return bytes;
}

std::size_t TieredTask::elements(std::span<const int> parts, std::size_t segment) const {
  std::size_t count = 0;
  for (const int part : parts) count += range(part, segment).size();
  return count;
}

// Returns a message for each run of neighbours if these are long enough, else one of all parts.
std::vector<TieredTask::Message> TieredTask::messages_of(std::span<const int> parts,
                                                         std::size_t segment) const {
  std::vector<Message> runs;
  std::size_t count = 0, begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Range own = range(parts[i], segment);
    count += own.size();
    if (i + 1 < parts.size() && range(parts[i + 1], segment).begin == own.end) continue;
    runs.push_back({.parts = parts.subspan(begin, i + 1 - begin)});
    begin = i + 1;
  }
  const bool worthwhile = count * element() >= runs.size() * transport().worthwhile_bytes();
  if (runs.size() <= 1 || worthwhile) return runs;
  return {{.parts = parts, .packed = true}};
}

// Sends parts of the tensor.
void TieredTask::send_parts(std::size_t segment, const Leg& leg) {
  for (const Message& message : messages_of(leg.parts, segment)) {
    const std::size_t bytes = elements(message.parts, segment) * element();
    const std::byte* from = at(range(message.parts.front(), segment).begin);
    if (message.packed && bytes > 0) {
      slots_[segment].packed.push_back(packed(message.parts, segment));
      from = slots_[segment].packed.back().get();
    }
    transport().send(from, bytes, leg.peer);
  }
}

// Receives parts of the tensor; unpack() takes those to their places that come packed.
void TieredTask::receive_parts(std::size_t segment, const Leg& leg) {
  for (const Message& message : messages_of(leg.parts, segment)) {
    const std::size_t bytes = elements(message.parts, segment) * element();
    std::byte* to = at(range(message.parts.front(), segment).begin);
    if (message.packed && bytes > 0) {
      slots_[segment].unpack.push_back({transport().workspace(bytes), message.parts});
      to = slots_[segment].unpack.back().data.get();
    }
    transport().receive(to, bytes, leg.peer);
  }
}

// Returns copies of parts of the tensor, one after the other.
Buffer TieredTask::packed(std::span<const int> parts, std::size_t segment) {
  Buffer data = transport().workspace(elements(parts, segment) * element());
  std::byte* to = data.get();
  for (const int part : parts) {
    const Range one = range(part, segment);
    transport().copy(to, at(one.begin), one.size() * element());
    to += one.size() * element();
  }
  return data;
}

// Takes received parts to their places, and ends what was sent.
void TieredTask::unpack(std::size_t segment) {
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

// Reduces what the last hop has brought, in the order in which the legs of this hop need it.
Buffer TieredTask::reduce_into_legs(std::size_t segment, int hop) {
  const Hop& own = hop_up(hop);
  const int block = tiers_->sums().block(hop, rank());
  const std::vector<int>& held = hop_up(hop - 1).kept;
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
  GivenValues given(*this, segment, hop - 1);
  for (std::size_t at = 0; at < held.size(); ++at) {
    const std::span<const SubtreeValue> values = given.next();
    const int leg = own.leg_above[at];
    std::byte*& target = leg < 0 ? next.back() : next[static_cast<std::size_t>(leg)];
    const std::size_t count = range(held[at], segment).size();
    if (count == 0) continue;
    std::size_t first = 0;
    for (const Subtree& subtree : tiers_->sums().subtrees(hop, block)) {
      const std::size_t last = end_of(subtree, values, first);
      sum_.evaluate(subtree, values.subspan(first, last - first), target, type_of(subtree), count);
      first = last;
      target += bytes_of_value(subtree, count);
    }
  }
  return out;
}

}  // namespace trireme
