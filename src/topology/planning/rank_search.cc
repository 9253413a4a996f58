// Looks for a cheap distribution of the grid's places over hosts: boxes of the grid for each tier,
// then swaps, then all distributions if they are few.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "topology/planning/place_loads.h"

namespace trireme {
namespace {

// Each part of the search ends after about this much work, some tenths of a second, so that the
// result depends on no clock.
constexpr std::size_t kWorkOfBoxes = 60'000'000;
constexpr std::size_t kWorkOfSwaps = 60'000'000;
constexpr std::size_t kMostVisits = 100'000;  // of partial distributions
// A search through all distributions of more places would not come to its end.
constexpr int kMostPlaces = 64;

struct BestHosts {
  HostsOfPlaces hosts;
  PlaceLoads::Sum cost;

  void offer(const PlaceLoads& loads, HostsOfPlaces other) {
    const PlaceLoads::Sum sum = PlaceLoads::sum_of(loads.seconds_of(other));
    if (!sum.cheaper_than(cost)) return;
    hosts = std::move(other);
    cost = sum;
  }
};

// Gives each host a box of the grid, each block of hosts a box of such boxes, and so on, in every
// way that fills them. Tiers whose blocks have different numbers of ranks are passed over.
class Boxes {
 public:
  Boxes(const GridShape& shape, const PlaceLoads& loads, const HostsOfPlaces& in_order,
        BestHosts& best)
      : loads_(loads), in_order_(in_order), best_(best) {
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i] = shape.extent(kGridDimensions[i].axes);
    for (int place = 0; place < shape.ranks(); ++place) {
      DimensionNumbers& indices = indices_.emplace_back();
      for (std::size_t i = 0; i < indices.size(); ++i) {
        indices[i] = shape.index(place, kGridDimensions[i].axes);
      }
    }
    int below = 1;
    for (int tier = 0; tier < loads.tiers(); ++tier) {
      const int size = size_of_blocks(tier);
      if (size == 0) {
        uneven_ = true;
      } else if (size > below) {
        sizes_.push_back(size / below);
        below = size;
      }
    }
    sizes_.push_back(loads.places() / below);
    boxes_.resize(sizes_.size());
  }

  void search() { fill(0, all_); }

 private:
  // 0: they differ.
  int size_of_blocks(int tier) const {
    std::map<int, int> sizes;
    for (const int host : in_order_) ++sizes[loads_.block(tier, host)];
    const int size = sizes.begin()->second;
    const bool same = std::all_of(sizes.begin(), sizes.end(),
                                  [&](const auto& one) { return one.second == size; });
    return same ? size : 0;
  }

  void fill(std::size_t level, const DimensionNumbers& left) {
    if (work_ > kWorkOfBoxes) return;
    const int size = sizes_[level];
    if (level + 1 == sizes_.size()) {
      boxes_[level] = left;  // as many places as ranks are left
      return try_orders();
    }
    choose(level, left.size() - 1, size, left);
  }

  // Chooses the box's extent in this dimension and in those outside of it, whose product is `size`.
  void choose(std::size_t level, std::size_t dimension, int size, const DimensionNumbers& left) {
    if (dimension == 0) {
      if (left[0] % size != 0) return;
      boxes_[level][0] = size;
      DimensionNumbers boxes = left;
      for (std::size_t i = 0; i < boxes.size(); ++i) boxes[i] /= boxes_[level][i];
      return fill(level + 1, boxes);
    }
    for (int extent = 1; extent <= std::min(size, left[dimension]); ++extent) {
      if (size % extent != 0 || left[dimension] % extent != 0) continue;
      boxes_[level][dimension] = extent;
      choose(level, dimension - 1, size / extent, left);
    }
  }

  // The order inside a box matters only where a tier was passed over.
  void try_orders() {
    DimensionNumbers outer_first;
    std::iota(outer_first.begin(), outer_first.end(), 0);
    do {
      work_ += loads_.work();
      best_.offer(loads_, distribution(outer_first));
    } while (uneven_ && std::next_permutation(outer_first.begin(), outer_first.end()));
  }

  HostsOfPlaces distribution(const DimensionNumbers& outer_first) const {
    HostsOfPlaces hosts;
    hosts.reserve(static_cast<std::size_t>(loads_.places()));
    for (const DimensionNumbers& place : indices_) {
      hosts.push_back(in_order_[position(place, outer_first)]);
    }
    return hosts;
  }

  std::size_t position(DimensionNumbers place, const DimensionNumbers& outer_first) const {
    int position = 0, stride = 1;
    for (const DimensionNumbers& box : boxes_) {
      int inside = 0, size = 1;
      for (const int dimension : outer_first) {
        const auto i = static_cast<std::size_t>(dimension);
        inside = inside * box[i] + place[i] % box[i];
        size *= box[i];
        place[i] /= box[i];
      }
      position += stride * inside;
      stride *= size;
    }
    return static_cast<std::size_t>(position);
  }

  DimensionNumbers all_;                   // the whole grid
  std::vector<DimensionNumbers> indices_;  // by place
  const PlaceLoads& loads_;
  const HostsOfPlaces& in_order_;
  BestHosts& best_;
  bool uneven_ = false;
  std::vector<int> sizes_;               // of a box, in boxes of the level below
  std::vector<DimensionNumbers> boxes_;  // by level, from the hosts up
  std::size_t work_ = 0;
};

// Swaps two places as long as that makes it cheaper. One of them loads the busiest link.
void swap_places(const PlaceLoads& loads, BestHosts& best) {
  std::vector<double> seconds = loads.seconds_of(best.hosts);
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  std::size_t work = 0;
  const auto change = [&](std::vector<double>& to, const HostsOfPlaces& hosts, int a, int b,
                          double sign) {
    for (const int place : {a, b}) {
      for (const PlaceLoads::Message& message : loads.messages(place)) {
        if (place == b && message.peer == a) continue;  // counted
        loads.add(to, hosts[index(place)], hosts[index(message.peer)], sign * message.bytes);
      }
    }
    work += 2 * loads.messages(a).size() * index(loads.tiers());
  };
  const auto improve = [&] {
    const int busiest =
        static_cast<int>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
    for (int a = 0; a < loads.places(); ++a) {
      bool inside = false;
      for (int tier = 0; tier < loads.tiers(); ++tier) {
        inside = inside || loads.block(tier, best.hosts[index(a)]) == busiest;
      }
      if (!inside) continue;
      for (int b = 0; b < loads.places(); ++b) {
        if (best.hosts[index(a)] == best.hosts[index(b)]) continue;
        if (work > kWorkOfSwaps) return false;
        std::vector<double> other = seconds;
        work += other.size();
        HostsOfPlaces& hosts = best.hosts;
        change(other, hosts, a, b, -1.0);
        std::swap(hosts[index(a)], hosts[index(b)]);
        change(other, hosts, a, b, 1.0);
        const PlaceLoads::Sum sum = PlaceLoads::sum_of(other);
        if (sum.cheaper_than(best.cost)) {
          best.cost = sum;
          seconds = std::move(other);
          return true;
        }
        std::swap(hosts[index(a)], hosts[index(b)]);
      }
    }
    return false;
  };
  while (improve()) continue;
  best.cost = PlaceLoads::sum_of(loads.seconds_of(best.hosts));
}

// Tries every distribution, except those that differ from one that was tried only in which of
// several equal hosts or blocks stands for which.
class All {
 public:
  All(const PlaceLoads& loads, BestHosts& best) : loads_(loads), best_(best) {
    const auto hosts = static_cast<std::size_t>(loads.hosts());
    for (std::size_t host = 0; host < hosts; ++host) {
      free_.push_back(static_cast<int>(loads.ranks_of(static_cast<int>(host)).size()));
    }
    find_twins();
    used_.resize(static_cast<std::size_t>(loads.blocks()), 0);
    hosts_.resize(static_cast<std::size_t>(loads.places()));
  }

  // Returns whether it came to an end.
  bool search() {
    visit(0, std::vector<double>(static_cast<std::size_t>(loads_.blocks()), 0.0));
    return visits_ <= kMostVisits;
  }

 private:
  // Blocks are twins if the block above them is the same, and their links and contents are equal.
  void find_twins() {
    using Look = std::pair<double, std::vector<int>>;  // of a block: its rate, and its contents
    std::map<Look, int> looks;
    std::vector<int> look_of(static_cast<std::size_t>(loads_.blocks()));
    twin_before_.assign(look_of.size(), -1);
    for (int tier = 0; tier < loads_.tiers(); ++tier) {
      std::map<int, Look> look;  // by block
      std::map<int, int> above;
      for (int host = 0; host < loads_.hosts(); ++host) {
        const int block = loads_.block(tier, host);
        above[block] = tier + 1 < loads_.tiers() ? loads_.block(tier + 1, host) : -1;
        Look& of_block = look[block];
        of_block.first = loads_.rate(block);
        of_block.second.push_back(
            tier == 0 ? -free_[static_cast<std::size_t>(host)]
                      : look_of[static_cast<std::size_t>(loads_.block(tier - 1, host))]);
      }
      std::map<std::pair<int, int>, int> last;  // by the block above and the look
      for (auto& [block, of_block] : look) {
        std::sort(of_block.second.begin(), of_block.second.end());
        const int number = looks.emplace(of_block, static_cast<int>(looks.size())).first->second;
        look_of[static_cast<std::size_t>(block)] = number;
        const auto [before, is_first] = last.emplace(std::pair(above[block], number), block);
        if (!is_first) {
          twin_before_[static_cast<std::size_t>(block)] = before->second;
          before->second = block;
        }
      }
    }
  }

  // Whether an equal block would do that comes earlier and is empty as well.
  bool has_empty_twin(int host) const {
    for (int tier = 0; tier < loads_.tiers(); ++tier) {
      const auto block = static_cast<std::size_t>(loads_.block(tier, host));
      if (used_[block] > 0) return false;
      const int twin = twin_before_[block];
      if (twin >= 0 && used_[static_cast<std::size_t>(twin)] == 0) return true;
    }
    return false;
  }

  void use(int host, int count) {
    free_[static_cast<std::size_t>(host)] -= count;
    for (int tier = 0; tier < loads_.tiers(); ++tier) {
      used_[static_cast<std::size_t>(loads_.block(tier, host))] += count;
    }
  }

  void visit(int place, const std::vector<double>& seconds) {
    if (++visits_ > kMostVisits) return;
    // More places never make it cheaper.
    const PlaceLoads::Sum sum = PlaceLoads::sum_of(seconds);
    if (!sum.cheaper_than(best_.cost)) return;
    if (place == loads_.places()) {
      best_ = {hosts_, sum};
      return;
    }
    for (int host = 0; host < loads_.hosts(); ++host) {
      if (free_[static_cast<std::size_t>(host)] == 0 || has_empty_twin(host)) continue;
      hosts_[static_cast<std::size_t>(place)] = host;
      std::vector<double> with = seconds;
      for (const PlaceLoads::Message& message : loads_.messages(place)) {
        if (message.peer > place) continue;
        loads_.add(with, host, hosts_[static_cast<std::size_t>(message.peer)], message.bytes);
      }
      use(host, 1);
      visit(place + 1, with);
      use(host, -1);
    }
  }

  const PlaceLoads& loads_;
  BestHosts& best_;
  std::vector<int> free_;         // places, by host
  std::vector<int> used_;         // places, by block
  std::vector<int> twin_before_;  // by block; -1: none
  HostsOfPlaces hosts_;
  std::size_t visits_ = 0;
};

}  // namespace

bool search_hosts(const GridShape& shape, const PlaceLoads& loads, const HostsOfPlaces& in_order,
                  HostsOfPlaces& hosts) {
  BestHosts best{hosts, PlaceLoads::sum_of(loads.seconds_of(hosts))};
  Boxes(shape, loads, in_order, best).search();
  swap_places(loads, best);
  bool exact = best.cost.total <= 0.0;
  if (!exact && loads.places() <= kMostPlaces) exact = All(loads, best).search();
  hosts = std::move(best.hosts);
  return exact;
}

}  // namespace trireme
