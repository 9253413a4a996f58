// An all-to-all in which the ranks of a node send together, for any placement of the ranks.
//
// What the ranks of a node have for another node goes to one of them, which sends it there in one
// message. The rank that receives it hands it out. The other nodes are dealt to the ranks of a node
// in turn. So a rank of m on each of N nodes sends about 3 m + N / m messages, and not m N, and its
// bytes pass two more times inside of nodes. Where each rank has a node of its own, leaf switches
// take the place of nodes, and so on.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/collectives/segmented_task.h"

namespace trireme {
namespace {

using RankGroups = std::vector<std::vector<int>>;

// The blocks of the lowest tier that has several, of several ranks; or else all ranks.
RankGroups groups_of(const RankBlocks* blocks, int ranks) {
  int tier = 0;
  const auto divides = [&] { return blocks->blocks(tier) > 1 && blocks->blocks(tier) < ranks; };
  while (blocks != nullptr && tier < blocks->tiers() && !divides()) ++tier;
  const bool has_tier = blocks != nullptr && tier < blocks->tiers();
  RankGroups groups(has_tier ? static_cast<std::size_t>(blocks->blocks(tier)) : 1);
  for (int rank = 0; rank < ranks; ++rank) {
    groups[has_tier ? static_cast<std::size_t>(blocks->block(tier, rank)) : 0].push_back(rank);
  }
  return groups;
}

class TieredAllToAll final : public SegmentedTask {
 public:
  TieredAllToAll(TransportPtr transport, Tensor input, Tensor output)
      : SegmentedTask(std::move(transport)),
        input_(std::move(input)),
        output_(std::move(output)),
        part_(static_cast<std::size_t>(input_.elements() / size())),
        groups_(groups_of(this->transport().blocks().get(), size())) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto found = std::ranges::find(groups_[i], rank());
      if (found == groups_[i].end()) continue;
      group_ = i;
      member_ = static_cast<std::size_t>(found - groups_[i].begin());
    }
  }

 private:
  // What a segment has under way. All buffers hold slices of one length.
  struct Slot {
    Buffer in, out;
    Buffer crossed;  // by group that this rank deals with, by its member, by member of the own one
  };

  Pipeline plan() override {
    if (part_ == 0) return {};
    Pipeline result{.segments = 1, .stages = 4, .stride = 2, .skew = 1};
    std::size_t most = 0;  // ranks of a group
    for (const std::vector<int>& group : groups_) most = std::max(most, group.size());
    // No rank holds more slices at once in a buffer: it deals with groups / most others or one
    // more.
    const std::size_t slices = (groups_.size() + most) * most;
    length_ = segment_length(part_, slices * element(),
                             std::max(groups_.size(), most) * transport().worthwhile_bytes(),
                             transport().segment_bytes() / (3 * result.window()));
    result.segments = segments_of(part_, length_);
    slots_.resize(result.segments);
    return result;
  }

  void run(std::size_t segment, int stage) override {
    segment_ = segment;
    if (stage == 0) {
      exchange_inside();
      gather();
    } else if (stage == 1) {
      cross();
    } else if (stage == 2) {
      hand_out();
    } else {
      take();
      slots_[segment] = {};
    }
  }

  // What stays in the group goes its way at once.
  void exchange_inside() {
    transport().copy(output(rank()), input(rank()), bytes(1));
    for (const int peer : own_group()) {
      if (peer == rank()) continue;
      transport().receive(output(peer), bytes(1), peer);
      transport().send(input(peer), bytes(1), peer);
    }
  }

  // Brings the contributions for other groups to the members that deal with these.
  void gather() {
    Slot& slot = slots_[segment_];
    slot.out = workspace(static_cast<std::size_t>(size()));
    slot.in = workspace((own_group().size() - 1) * slices_for(member_));
    std::byte* to = slot.out.get();
    std::byte* into = slot.in.get();
    for_each_other_member([&](std::size_t member, int peer) {
      into = receive(into, slices_for(member_), peer);
      std::byte* const first = to;
      for_each_group_of(member, [&](const std::vector<int>& group) {
        for (const int target : group) to = append(to, input(target));
      });
      send(first, slices_for(member), peer);
    });
  }

  // One message to each group that this rank deals with: by member of the own group, by member of
  // the other one.
  void cross() {
    Slot& slot = slots_[segment_];
    const Buffer gathered = std::move(slot.in);
    const std::size_t all = own_group().size() * slices_for(member_);
    slot.out = workspace(all);
    slot.crossed = workspace(all);
    std::byte* to = slot.out.get();
    std::byte* into = slot.crossed.get();
    std::size_t before = 0;  // slices of a member for groups before this one
    for_each_group_of(member_, [&](const std::vector<int>& group) {
      std::byte* const first = to;
      std::size_t place = 0;  // among the other members
      for (const int member : own_group()) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          to = append(to, member == rank()
                              ? input(group[i])
                              : gathered.get() + bytes(place * slices_for(member_) + before + i));
        }
        if (member != rank()) ++place;
      }
      before += group.size();
      const int peer = group[group_ % group.size()];
      const std::size_t count = own_group().size() * group.size();
      into = receive(into, count, peer);
      send(first, count, peer);
    });
  }

  void hand_out() {
    Slot& slot = slots_[segment_];
    const std::size_t from_groups = slices_for(member_);
    slot.out = workspace((own_group().size() - 1) * from_groups);
    slot.in = workspace(static_cast<std::size_t>(size()));
    std::byte* to = slot.out.get();
    std::byte* into = slot.in.get();
    for_each_other_member([&](std::size_t member, int peer) {
      into = receive(into, slices_for(member), peer);
      std::byte* const first = to;
      for (std::size_t source = 0; source < from_groups; ++source) {
        to = append(to, crossed(source, member));
      }
      send(first, from_groups, peer);
    });
    std::size_t source = 0;
    for_each_group_of(member_, [&](const std::vector<int>& group) {
      for (const int from : group) append(output(from), crossed(source++, member_));
    });
  }

  void take() {
    const std::byte* next = slots_[segment_].in.get();
    for_each_other_member([&](std::size_t member, int) {
      for_each_group_of(member, [&](const std::vector<int>& group) {
        for (const int from : group) {
          append(output(from), next);
          next += bytes(1);
        }
      });
    });
  }

  const std::vector<int>& own_group() const { return groups_[group_]; }
  template <class Visit>
  void for_each_other_member(Visit visit) const {
    for (std::size_t member = 0; member < own_group().size(); ++member) {
      if (member != member_) visit(member, own_group()[member]);
    }
  }
  // The groups that a member of the own group deals with.
  template <class Visit>
  void for_each_group_of(std::size_t member, Visit visit) const {
    for (std::size_t i = member; i < groups_.size(); i += own_group().size()) {
      if (i != group_) visit(groups_[i]);
    }
  }
  // The ranks of these groups.
  std::size_t slices_for(std::size_t member) const {
    std::size_t count = 0;
    for_each_group_of(member, [&](const std::vector<int>& group) { count += group.size(); });
    return count;
  }
  // What source number `source` of these groups has sent to a member.
  const std::byte* crossed(std::size_t source, std::size_t member) const {
    return slots_[segment_].crossed.get() + bytes(source * own_group().size() + member);
  }

  std::size_t element() const { return size_of(input_.dtype()); }
  std::size_t bytes(std::size_t slices) const {
    return slices * std::min(length_, part_ - segment_ * length_) * element();
  }
  std::size_t offset(int peer) const {
    return (static_cast<std::size_t>(peer) * part_ + segment_ * length_) * element();
  }
  const std::byte* input(int peer) const { return bytes_of(input_) + offset(peer); }
  std::byte* output(int peer) const { return bytes_of(output_) + offset(peer); }

  Buffer workspace(std::size_t slices) const {
    return slices > 0 ? transport().workspace(bytes(slices)) : Buffer();
  }
  std::byte* append(std::byte* to, const std::byte* from) const {
    transport().copy(to, from, bytes(1));
    return to + bytes(1);
  }
  std::byte* receive(std::byte* into, std::size_t slices, int peer) const {
    if (slices > 0) transport().receive(into, bytes(slices), peer);
    return into + bytes(slices);
  }
  void send(const std::byte* from, std::size_t slices, int peer) const {
    if (slices > 0) transport().send(from, bytes(slices), peer);
  }

  Tensor input_, output_;
  std::size_t part_, length_ = 1;  // elements: of a part, of its slice in a segment
  RankGroups groups_;
  std::size_t group_ = 0, member_ = 0;  // of this rank
  std::size_t segment_ = 0;             // that is processed
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<Task> make_tiered_all_to_all(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<TieredAllToAll>(std::move(transport), std::move(input),
                                          std::move(output));
}

}  // namespace trireme
