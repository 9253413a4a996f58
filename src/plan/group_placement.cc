#include "plan/group_placement.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

namespace trireme::plan {
namespace {

// Nodes and leaf switches are much alike, so that looking at some of a large group's is enough.
constexpr std::size_t kMostNodes = 64, kMostLeaves = 8;

// Some of the different values, evenly spaced, the first among them.
std::vector<int> sample(std::vector<int> values, std::size_t most) {
  std::ranges::sort(values);
  const auto doubles = std::ranges::unique(values);
  values.erase(doubles.begin(), doubles.end());
  if (values.size() <= most) return values;
  std::vector<int> taken;
  for (std::size_t i = 0; i < most; ++i) taken.push_back(values[i * values.size() / most]);
  return taken;
}

template <class Place>
std::vector<int> places_of(const std::vector<int>& ranks, const Place& place) {
  std::vector<int> places;
  places.reserve(ranks.size());
  for (const int rank : ranks) places.push_back(place(rank));
  return places;
}

}  // namespace

int SharedLinks::member(int rank, Axes axes, int index) const {
  const int island = rank / grid_.ranks();
  int place = rank % grid_.ranks();
  for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {
    if (!axes.contains(*axis)) continue;
    place += (index % grid_[*axis] - grid_.index(place, *axis)) * grid_.stride(*axis);
    index /= grid_[*axis];
  }
  return island * grid_.ranks() + place;
}

SharedLinks::Group SharedLinks::group_of(const GroupLabel& label, int rank) const {
  const int place = rank % grid_.ranks();
  if (label.purpose == Purpose::kMeetings) {
    return {.number = place, .first = place, .last = (islands_ - 1) * grid_.ranks() + place};
  }
  const Span& span = label.span;
  const int own = grid_.index(place, span);
  if (own < 0) return {};
  int from = 0, to = grid_.extent(span.axes) - 1;
  if (span.block > 0) {
    from = grid_.index(place, span.axes) - own;
    to = from + span.block - 1;
  } else if (!span.only.empty()) {
    from = std::ranges::min(span.only);
    to = std::ranges::max(span.only);
  }
  const int first = member(rank, span.axes, from);
  return {.number = first, .first = first, .last = member(rank, span.axes, to)};
}

Sharing SharedLinks::of_group(const GroupLabel& label, const std::vector<int>& ranks) const {
  Sharing most;
  const bool meets = label.purpose == Purpose::kMeetings;
  const bool known = meets ? static_cast<std::size_t>(islands_) == ranks.size()
                           : static_cast<std::size_t>(grid_.extent(label.span)) == ranks.size();
  if (!known || std::ranges::max(ranks) >= this->ranks()) return most;
  const auto count = [&](int first, int ranks_there, const auto& counts) {
    std::unordered_set<int> groups;
    for (int rank = first; rank < std::min(first + ranks_there, this->ranks()); ++rank) {
      const Group group = group_of(label, rank);
      if (group.number >= 0 && counts(group)) groups.insert(group.number);
    }
    return std::max(static_cast<int>(groups.size()), 1);
  };
  const int of_node = layout_.ranks_of_node, of_leaf = layout_.ranks_of_leaf();
  const auto node = [&](int rank) { return layout_.node(rank); };
  for (const int one : sample(places_of(ranks, node), kMostNodes)) {
    most.inside = std::max(most.inside, count(one * of_node, of_node, [](Group) { return true; }));
    most.node = std::max(most.node, count(one * of_node, of_node, [&](Group group) {
                           return layout_.node(group.first) != layout_.node(group.last);
                         }));
  }
  if (of_leaf == 0) return most;
  const auto leaf = [&](int rank) { return layout_.leaf(rank); };
  for (const int one : sample(places_of(ranks, leaf), kMostLeaves)) {
    most.leaf = std::max(most.leaf, count(one * of_leaf, of_leaf, [&](Group group) {
                           return layout_.leaf(group.first) != layout_.leaf(group.last);
                         }));
  }
  return most;
}

Sharing SharedLinks::of_message(const GroupLabel& label, int a, int b) const {
  Sharing most;
  const Axes axes = label.span.axes;
  if (std::max(a, b) >= ranks()) return most;
  const int number_a = grid_.index(a % grid_.ranks(), axes);
  const int number_b = grid_.index(b % grid_.ranks(), axes);
  if (number_a == number_b) return most;
  // Messages out of (or into) the ranks from `first` on that are number `own` in their groups.
  const auto count = [&](int first, int ranks_there, int own, int other, const auto& counts) {
    int messages = 0;
    for (int rank = first; rank < std::min(first + ranks_there, ranks()); ++rank) {
      if (grid_.index(rank % grid_.ranks(), axes) != own) continue;
      if (counts(rank, member(rank, axes, other))) ++messages;
    }
    return std::max(messages, 1);
  };
  const int of_node = layout_.ranks_of_node, of_leaf = layout_.ranks_of_leaf();
  const auto near = [&](int one, int other) { return layout_.node(one) == layout_.node(other); };
  const auto leaves = [&](int one, int other) { return !near(one, other); };
  const auto rises = [&](int one, int other) { return layout_.leaf(one) != layout_.leaf(other); };
  using End = std::pair<int, std::pair<int, int>>;
  for (const auto& [rank, numbers] : {End{a, {number_a, number_b}}, End{b, {number_b, number_a}}}) {
    const auto [own, other] = numbers;
    const int node = layout_.node(rank) * of_node;
    most.inside = std::max(most.inside, count(node, of_node, own, other, near));
    most.node = std::max(most.node, count(node, of_node, own, other, leaves));
    if (of_leaf == 0) continue;
    most.leaf =
        std::max(most.leaf, count(layout_.leaf(rank) * of_leaf, of_leaf, own, other, rises));
  }
  return most;
}

RankBlocks blocks_of(const NodeLayout& layout, const std::vector<int>& ranks) {
  std::vector<std::vector<int>> tiers{
      places_of(ranks, [&](int rank) { return layout.node(rank); })};
  std::vector<int> leaves = places_of(ranks, [&](int rank) { return layout.leaf(rank); });
  const bool one_leaf = std::ranges::all_of(leaves, [&](int one) { return one == leaves.front(); });
  if (!one_leaf) tiers.push_back(std::move(leaves));
  return RankBlocks(static_cast<int>(ranks.size()), std::move(tiers));
}

}  // namespace trireme::plan
