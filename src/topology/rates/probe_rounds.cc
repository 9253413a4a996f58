// Which ranks send to which.
#include <algorithm>
#include <map>

#include "trireme/topology/probe.h"

namespace trireme {
namespace {

constexpr int kPartners = 3;     // of a block, if there are so many
constexpr int kMostRounds = 6;   // of two directions each
constexpr int kHostRounds = 1;   // likewise
constexpr int kBlockRounds = 2;  // likewise

using Ranks = std::vector<int>;
using NodesOfBlock = std::vector<Ranks>;

struct Block {
  int number;
  NodesOfBlock nodes;
};

// The blocks of the tier below the distance, by the block of the distance's own tier that holds
// them.
std::vector<std::vector<Block>> families_of(const RankBlocks& blocks, int distance) {
  std::map<int, std::map<int, std::map<int, Ranks>>> tree;
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    const int family = distance < blocks.tiers() ? blocks.block(distance, rank) : 0;
    tree[family][blocks.block(distance - 1, rank)][blocks.block(0, rank)].push_back(rank);
  }
  std::vector<std::vector<Block>> families;
  for (auto& [family, children] : tree) {
    std::vector<Block>& members = families.emplace_back();
    for (auto& [number, nodes] : children) {
      Block& block = members.emplace_back(Block{number, {}});
      for (auto& [node, ranks] : nodes) block.nodes.push_back(std::move(ranks));
    }
  }
  return families;
}

// The pairs of a round of a tournament among `count` players. An odd one out rests.
std::vector<std::pair<int, int>> tournament_round(int count, int round) {
  const int seats = count + count % 2, circle = seats - 1;
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < seats / 2; ++i) {
    const int a = i == 0 ? seats - 1 : (round + i) % circle;
    const int b = (round + circle - i) % circle;
    if (a < count && b < count) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  return pairs;
}

int rounds_of_tournament(std::size_t count) {
  return static_cast<int>(count + count % 2) - 1;
}

// Round `k` of `rounds`, which are spread over the tournament.
int spread(int k, int rounds, std::size_t count) {
  const int all = rounds_of_tournament(count);
  return rounds < all ? k * all / rounds : k % all;
}

// Adds the round, and the same in the other direction. `pair_up` gives the ranks of two blocks.
template <class PairUp>
void add_rounds(const std::vector<std::vector<Block>>& families, int rounds, const PairUp& pair_up,
                std::vector<ProbeRound>& out) {
  for (int k = 0; k < rounds; ++k) {
    ProbeRound there, back;
    for (const std::vector<Block>& family : families) {
      if (family.size() < 2) continue;
      const int which = spread(k, rounds, family.size());
      for (const auto& [a, b] : tournament_round(static_cast<int>(family.size()), which)) {
        const Block& one = family[static_cast<std::size_t>(a)];
        const Block& other = family[static_cast<std::size_t>(b)];
        there.push_back({one.number, other.number, pair_up(one, other, k)});
        back.push_back({other.number, one.number, pair_up(other, one, k)});
      }
    }
    if (there.empty()) continue;
    out.push_back(std::move(there));
    out.push_back(std::move(back));
  }
}

const Ranks& node_of(const Block& block, int k) {
  return block.nodes[static_cast<std::size_t>(k) % block.nodes.size()];
}

// Each rank of one set sends to a rank of the other.
std::vector<std::pair<int, int>> all_of(const Ranks& from, const Ranks& to) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < from.size(); ++i) pairs.emplace_back(from[i], to[i % to.size()]);
  return pairs;
}

Ranks ranks_of(const Block& block) {
  Ranks ranks;
  for (const Ranks& node : block.nodes) ranks.insert(ranks.end(), node.begin(), node.end());
  return ranks;
}

ProbeRounds rounds_within_nodes(const RankBlocks& blocks) {
  std::map<int, Ranks> nodes;
  for (int rank = 0; rank < blocks.ranks(); ++rank) nodes[blocks.block(0, rank)].push_back(rank);
  ProbeRounds rounds;
  ProbeRound one, all;
  bool several = false;
  for (const auto& [node, ranks] : nodes) {
    const std::size_t count = ranks.size();
    one.push_back({node, node, {{ranks[0], ranks[1 % count]}}});
    ProbeStream& ring = all.emplace_back(ProbeStream{node, node, {}});
    for (std::size_t i = 0; i < count; ++i)
      ring.ranks.emplace_back(ranks[i], ranks[(i + 1) % count]);
    several = several || count > 1;
  }
  rounds.flow.push_back(std::move(one));
  if (several) rounds.host.push_back(std::move(all));
  return rounds;
}

}  // namespace

ProbeRounds probe_rounds(const RankBlocks& blocks, int distance) {
  if (distance == 0) return rounds_within_nodes(blocks);
  const auto families = families_of(blocks, distance);
  std::size_t most_blocks = 0, most_nodes = 0, most_ranks = 0;
  for (const std::vector<Block>& family : families) {
    most_blocks = std::max(most_blocks, family.size());
    for (const Block& block : family) {
      most_nodes = std::max(most_nodes, block.nodes.size());
      for (const Ranks& node : block.nodes) most_ranks = std::max(most_ranks, node.size());
    }
  }
  ProbeRounds rounds;
  if (most_blocks < 2) return rounds;
  const int partners = std::min(kPartners, rounds_of_tournament(most_blocks));
  // Where blocks have several nodes, each of these shall have its turn.
  const int turns = std::min(kMostRounds, std::max(partners, static_cast<int>(most_nodes)));
  add_rounds(
      families, turns,
      [](const Block& from, const Block& to, int k) {
        return std::vector{std::pair(node_of(from, k).front(), node_of(to, k).front())};
      },
      rounds.flow);
  if (most_ranks > 1) {
    add_rounds(
        families, kHostRounds,
        [](const Block& from, const Block& to, int k) {
          return all_of(node_of(from, k), node_of(to, k));
        },
        rounds.host);
  }
  if (most_nodes > 1) {
    add_rounds(
        families, std::min(kBlockRounds, rounds_of_tournament(most_blocks)),
        [](const Block& from, const Block& to, int) {
          return all_of(ranks_of(from), ranks_of(to));
        },
        rounds.block);
  }
  return rounds;
}

}  // namespace trireme
