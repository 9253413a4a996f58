#include "topology/planning/round_shapes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

RoundShapes::RoundShapes(const TreeNetwork& network, double latency, const RankBlocks* blocks,
                         const TierBlocks& tiers, const TierBlocks& tiers_up)
    : network_(network),
      latency_(latency),
      ranks_(network.ranks()),
      tree_(ranks_, blocks),
      tiers_(tiers),
      tiers_up_(tiers_up),
      order_(static_cast<std::size_t>(ranks_)),
      loads_(network.links().size()) {
  std::iota(order_.begin(), order_.end(), 0);
  if (blocks != nullptr) order_ = blocks->in_order();
}

const RoundShape& RoundShapes::of(Pattern pattern, int step) {
  const auto known = shapes_.find({pattern, step});
  if (known != shapes_.end()) return known->second;
  return shapes_.emplace(std::pair(pattern, step), make(pattern, step)).first->second;
}

const RoundShapes::Row& RoundShapes::row_of(Pattern pattern) {
  using S = RoundShapes;
  static constexpr std::array kRows = {
      Row{Pattern::kShift, &S::load_shift},
      Row{Pattern::kXor, &S::load_xor},
      Row{Pattern::kJoin, &S::load_halves, true},
      Row{Pattern::kSpread, &S::load_halves, false},
      Row{Pattern::kEveryone, &S::load_everyone},
      Row{Pattern::kFold, &S::load_pairs, true},
      Row{Pattern::kUnfold, &S::load_pairs, false},
      Row{Pattern::kRing, &S::load_ring},
      Row{Pattern::kTier, &S::load_tier},
      Row{Pattern::kTree, &S::load_tree},
      Row{Pattern::kGiveUp, &S::load_gifts, true},
      Row{Pattern::kGiveDown, &S::load_gifts, false},
      Row{Pattern::kStar, &S::load_star},
      Row{Pattern::kChain, &S::load_chain},
      Row{Pattern::kGather, &S::load_inside, true},
      Row{Pattern::kCross, &S::load_across},
      Row{Pattern::kHandOut, &S::load_inside, false},
  };
  const auto row = std::ranges::find(kRows, pattern, &Row::pattern);
  TRIREME_CHECK(row != kRows.end(), "every pattern of messages has a row");
  return *row;
}

RoundShape RoundShapes::make(Pattern pattern, int step) {
  const Row& row = row_of(pattern);
  RoundShape shape{.ends = 2};
  (this->*row.load)(shape, step, row.forth);
  for (const int link : loaded_) {
    double& loaded = loads_[static_cast<std::size_t>(link)];
    shape.links.emplace_back(
        link, loaded / network_.links()[static_cast<std::size_t>(link)].bytes_per_second);
    loaded = 0.0;
  }
  loaded_.clear();
  for (const auto& [link, seconds] : shape.links) shape.busiest = std::max(shape.busiest, seconds);
  return shape;
}

void RoundShapes::load(RoundShape& shape, int from, int to, double weight) {
  shape.latency = std::max(shape.latency, network_.latency(from, to).value_or(latency_));
  shape.flow = std::max(shape.flow, weight / network_.highest_rate(from, to));
  route_.clear();
  network_.route(from, to, route_);
  ++shape.messages;
  for (const int link : route_) {
    double& loaded = loads_[static_cast<std::size_t>(link)];
    if (loaded == 0.0) loaded_.push_back(link);
    loaded += weight;
  }
}

void RoundShapes::load_shift(RoundShape& shape, int step, bool) {
  for (int rank = 0; rank < ranks_; ++rank) load(shape, rank, (rank + step) % ranks_);
}

void RoundShapes::load_xor(RoundShape& shape, int step, bool) {
  for (int term = 0; term < tree_.terms(); ++term) {
    load(shape, tree_.rank_of(term), tree_.rank_of(term ^ step));
  }
}

void RoundShapes::load_halves(RoundShape& shape, int step, bool join) {
  shape.ends = 1;
  for (int term = 0; term < tree_.terms(); term += 2 * step) {
    const int low = tree_.rank_of(term), high = tree_.rank_of(term + step);
    load(shape, join ? high : low, join ? low : high);
  }
}

void RoundShapes::load_pairs(RoundShape& shape, int, bool fold) {
  shape.ends = 1;
  for (int term = 0; term < tree_.pairs(); ++term) {
    const int stands = tree_.rank_of(term), other = stands ^ 1;
    load(shape, fold ? other : stands, fold ? stands : other);
  }
}

void RoundShapes::load_ring(RoundShape& shape, int, bool) {
  for (std::size_t place = 0; place < order_.size(); ++place) {
    load(shape, order_[place], order_[(place + 1) % order_.size()]);
  }
}

void RoundShapes::load_everyone(RoundShape& shape, int, bool) {
  shape = {.messages = std::int64_t{ranks_} * (ranks_ - 1), .ends = 2 * (ranks_ - 1)};
  // One of the ranks that are farthest from rank 0 is as far as any two can be.
  for (int rank = 1; rank < ranks_; ++rank) {
    for (const int other : {0, rank - 1}) {
      shape.latency = std::max(shape.latency, network_.latency(other, rank).value_or(latency_));
      shape.flow = std::max(shape.flow, 1.0 / network_.highest_rate(other, rank));
    }
  }
  std::vector<double> messages;
  network_.count_everyone(messages);
  for (std::size_t link = 0; link < messages.size(); ++link) {
    if (messages[link] == 0.0) continue;
    shape.links.emplace_back(static_cast<int>(link),
                             messages[link] / network_.links()[link].bytes_per_second);
  }
}

// Every rank with its likes in the other blocks.
void RoundShapes::load_tier(RoundShape& shape, int hop, bool) {
  const std::vector<int>& sizes = tiers_.sizes;
  int inside = 1;  // ranks of a block
  for (int i = 0; i < hop; ++i) inside *= sizes[static_cast<std::size_t>(i)];
  const int blocks = sizes[static_cast<std::size_t>(hop)];
  if (inside == 1 && blocks == ranks_) {  // of everyone with everyone, which need not be counted
    return load_everyone(shape, 0, false);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const int first = rank / (inside * blocks) * inside * blocks + rank % inside;
    for (int block = 0; block < blocks; ++block) {
      const int peer = first + block * inside;
      if (peer != rank) load(shape, rank, peer);
    }
  }
  shape.ends = 2 * (blocks - 1);
}

void RoundShapes::load_tree(RoundShape& shape, int depth, bool) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (std::popcount(static_cast<unsigned>(rank)) != depth) continue;
    const int above =
        rank == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_))) : rank & -rank;
    int children = 0;
    for (int bit = above / 2; bit > 0; bit /= 2) {
      if (rank + bit < ranks_) load(shape, rank, rank + bit), ++children;
    }
    shape.ends = std::max(shape.ends, children);
  }
}

// What each block has for another one of the same block above it.
void RoundShapes::load_gifts(RoundShape& shape, int hop, bool up) {
  const TierBlocks& tiers = up ? tiers_up_ : tiers_;
  const auto& blocks = tiers.tiers[static_cast<std::size_t>(hop)];
  RankTotals totals{std::vector<int>(static_cast<std::size_t>(ranks_)),
                    std::vector<double>(static_cast<std::size_t>(ranks_))};
  for (const TierBlocks::Block& parent : tiers.tiers[static_cast<std::size_t>(hop + 1)]) {
    for (const int one : parent.below) {
      const TierBlocks::Block& from = blocks[static_cast<std::size_t>(one)];
      for (const int other : parent.below) {
        if (one == other) continue;
        load_gift(shape,
                  {.from = from.ranks,
                   .to = blocks[static_cast<std::size_t>(other)].ranks,
                   .values = up ? from.subtrees : 1,
                   .shares = parent.below.size()},
                  totals);
      }
    }
  }
  shape.ends = std::ranges::max(totals.ends);
  shape.reduced = std::ranges::max(totals.added);
}

// What crosses between two blocks is divided evenly among their ranks.
void RoundShapes::load_gift(RoundShape& shape, const Gift& gift, RankTotals& totals) {
  const std::size_t messages = std::max(gift.from.size(), gift.to.size());
  const double weight = gift.values / static_cast<double>(gift.shares * messages);
  for (std::size_t i = 0; i < messages; ++i) {
    const int from = gift.from[i % gift.from.size()], to = gift.to[i % gift.to.size()];
    load(shape, from, to, weight);
    ++totals.ends[static_cast<std::size_t>(from)], ++totals.ends[static_cast<std::size_t>(to)];
    totals.added[static_cast<std::size_t>(to)] += weight;
  }
}

void RoundShapes::load_star(RoundShape& shape, int hop, bool) {
  shape.ends = 1;
  const auto& blocks = tiers_.tiers[static_cast<std::size_t>(hop)];
  for (const TierBlocks::Block& parent : tiers_.tiers[static_cast<std::size_t>(hop + 1)]) {
    for (const int block : parent.below) {
      const int to = blocks[static_cast<std::size_t>(block)].ranks.front();
      if (to != parent.ranks.front()) load(shape, parent.ranks.front(), to);
    }
    shape.ends = std::max(shape.ends, static_cast<int>(parent.below.size()) - 1);
  }
}

// A round is a hop of average length, so that as many rounds as there are hops take what all take.
void RoundShapes::load_chain(RoundShape& shape, int, bool) {
  const double hops = ranks_ - 1;
  double latency = 0.0, flow = 0.0;
  for (std::size_t place = 1; place < order_.size(); ++place) {
    const int from = order_[place - 1], to = order_[place];
    load(shape, from, to, 1.0 / hops);
    latency += network_.latency(from, to).value_or(latency_);
    double slowest = 1.0 / network_.highest_rate(from, to);
    for (const int link : route_) {
      const Link& one = network_.links()[static_cast<std::size_t>(link)];
      slowest = std::max(slowest, 1.0 / one.bytes_per_second);
    }
    flow += slowest;
  }
  shape.latency = latency / hops;
  shape.flow = flow / hops;
  shape.messages = 1;
}

// Each rank passes on what is for an equal share of the ranks elsewhere.
void RoundShapes::load_inside(RoundShape& shape, int, bool own) {
  shape.ends = 0;
  for (const TierBlocks::Block& group : tiers_.groups()) {
    const auto size = static_cast<double>(group.ranks.size());
    const double weight = (ranks_ - size) / size + (own ? 1.0 : 0.0);
    for (const int from : group.ranks) {
      for (const int to : group.ranks) {
        if (from != to) load(shape, from, to, weight);
      }
    }
    const int others = static_cast<int>(group.ranks.size()) - 1;
    shape.ends = std::max(shape.ends, (own ? 4 : 2) * others);
  }
}

void RoundShapes::load_across(RoundShape& shape, int, bool) {
  const auto& groups = tiers_.groups();
  std::vector<int> ends(static_cast<std::size_t>(ranks_));
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = 0; b < groups.size(); ++b) {
      if (a == b) continue;
      const std::vector<int>&from = groups[a].ranks, &to = groups[b].ranks;
      const int sender = from[b % from.size()], receiver = to[a % to.size()];
      load(shape, sender, receiver, static_cast<double>(from.size() * to.size()));
      ++ends[static_cast<std::size_t>(sender)], ++ends[static_cast<std::size_t>(receiver)];
    }
  }
  shape.ends = std::ranges::max(ends);
}

}  // namespace trireme
