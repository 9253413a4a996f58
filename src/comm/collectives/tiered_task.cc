#include "comm/collectives/tiered_task.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/reduce.h"

namespace trireme {

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
  Slot& slot = slots_[segment];
  const Hop& own = hop_up(hop);
  Buffer out;
  if (hop > 0) out = reduce_into_legs(segment, hop);
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

void TieredTask::finish_up(std::size_t segment) {
  const Subtree root = tiers_->sums().subtrees(hops_up(), 0).front();
  for_each_kept(segment, hops_up() - 1, [&](std::size_t at, std::span<const SubtreeValue> values) {
    const int part = up_.back().kept[at];
    const std::size_t count = range(part, segment).size();
    if (count > 0) sum_.evaluate(root, values, result(part, segment), dtype_, count);
  });
  slots_[segment] = {};
}

void TieredTask::send_down(std::size_t segment, int hop) {
  unpack(segment);
  Slot& slot = slots_[segment];
  const Hop& own = hop_down(hop);
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

// Calls visit(parts, packed) for each message in which the parts go in the tensor's type: for each
// run of neighbours if these are long enough, else once for all of them, which are then packed.
void TieredTask::in_messages(std::size_t segment, std::span<const int> parts,
                             const VisitMessage& visit) const {
  std::vector<std::size_t> ends;  // of runs
  std::size_t count = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Range own = range(parts[i], segment);
    count += own.size();
    if (i + 1 == parts.size() || range(parts[i + 1], segment).begin != own.end) {
      ends.push_back(i + 1);
    }
  }
  if (ends.size() > 1 && count * element() < ends.size() * transport().worthwhile_bytes()) {
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
void TieredTask::send_parts(std::size_t segment, const Leg& leg) {
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

// Calls visit(i, values) for each part i of those that were kept in the hop: what the blocks below
// have given for it, in the order of T(size).
void TieredTask::for_each_kept(std::size_t segment, int hop, const VisitPart& visit) {
  const Slot& slot = slots_[segment];
  const Hop& own = hop_up(hop);
  const TierPlan& plan = tiers_->sums();
  const std::vector<int>& blocks = plan.children(hop + 1, plan.block(hop + 1, rank()));
  std::vector<const std::byte*> next;  // by leg
  const std::byte* in = slot.in.get();
  for (const Leg& leg : own.below) {
    next.push_back(in);
    in += bytes_up(leg, segment, hop);
  }
  const std::byte* kept = slot.kept;
  std::vector<SubtreeValue> values;
  for (const int block : blocks) {
    for (const Subtree& subtree : plan.subtrees(hop, block)) {
      values.push_back({subtree, nullptr, type_of(subtree)});
    }
  }
  std::ranges::sort(values, {}, [](const SubtreeValue& one) { return one.subtree.order(); });
  // Where each value comes from is the same for all parts.
  struct Origin {
    std::size_t value, block;  // the value's place in the order of T(size)
  };
  std::vector<Origin> origins;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const Subtree& subtree : plan.subtrees(hop, blocks[i])) {
      const auto place = std::ranges::find(values, subtree, &SubtreeValue::subtree);
      origins.push_back({static_cast<std::size_t>(place - values.begin()), i});
    }
  }
  for (std::size_t at = 0; at < own.kept.size(); ++at) {
    const Range part = range(own.kept[at], segment);
    for (const auto& [number, block] : origins) {
      SubtreeValue& value = values[number];
      const int leg = own.leg_below[at * blocks.size() + block];
      if (leg < 0 && hop == 0) {
        value.data = this->at(part.begin);
        continue;
      }
      const std::byte*& data = leg < 0 ? kept : next[static_cast<std::size_t>(leg)];
      value.data = data;
      data += hop == 0 ? part.size() * element() : bytes_of_value(value.subtree, part.size());
    }
    visit(at, values);
  }
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
  for_each_kept(segment, hop - 1, [&](std::size_t at, std::span<const SubtreeValue> values) {
    const int leg = own.leg_above[at];
    std::byte*& target = leg < 0 ? next.back() : next[static_cast<std::size_t>(leg)];
    const std::size_t count = range(held[at], segment).size();
    if (count == 0) return;
    std::size_t first = 0;
    for (const Subtree& subtree : tiers_->sums().subtrees(hop, block)) {
      const std::size_t last = end_of(subtree, values, first);
      sum_.evaluate(subtree, values.subspan(first, last - first), target, type_of(subtree), count);
      first = last;
      target += bytes_of_value(subtree, count);
    }
  });
  return out;
}

}  // namespace trireme
