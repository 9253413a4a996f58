// The tree T(p) along which the contributions of p ranks are reduced, whatever algorithm carries
// them (README.md, "Order of sums"). So the bits of a result depend on the contributions alone.
//
// Let q be the largest power of two not above p, and e = p - q. The first 2e ranks are reduced in
// pairs (0 with 1, 2 with 3, ...), which leaves q terms in the order of ranks. Then neighbouring
// terms are reduced, and neighbouring results again, until one is left. The block of lower ranks is
// always the left operand.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "trireme/comm/rank_blocks.h"

namespace trireme {

class SumTree {
 public:
  // `blocks`, which must outlive the tree, say who is near whom; nullptr: nothing is known.
  explicit SumTree(int ranks, const RankBlocks* blocks = nullptr)
      : terms_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        pairs_(ranks - terms_),
        blocks_(blocks) {}

  int terms() const { return terms_; }  // q
  int pairs() const { return pairs_; }  // e: each of the terms 0 to e - 1 is a pair of ranks

  bool is_paired(int rank) const { return rank < 2 * pairs_; }
  int term_of(int rank) const { return is_paired(rank) ? rank / 2 : rank - pairs_; }
  int first_rank_of(int term) const { return term < pairs_ ? 2 * term : term + pairs_; }
  // The rank that stands for a term. Of a pair it is the one that is nearer to the neighbouring
  // term, with which theirs is reduced next and exchanges most; the even one if both are as near.
  int rank_of(int term) const {
    const int even = first_rank_of(term);
    if (blocks_ == nullptr || !is_paired(even)) return even;
    return distance(even + 1, term ^ 1) < distance(even, term ^ 1) ? even + 1 : even;
  }
  bool stands_for_term(int rank) const { return rank_of(term_of(rank)) == rank; }

 private:
  // The distance from a rank to the nearer one of a term's ranks.
  int distance(int rank, int term) const {
    const int first = first_rank_of(term), near = blocks_->distance(rank, first);
    return is_paired(first) ? std::min(near, blocks_->distance(rank, first + 1)) : near;
  }

  int terms_, pairs_;
  const RankBlocks* blocks_;
};

// What one rank sends and receives when all ranks reduce by recursive doubling on the terms of
// T(p). One rank of a pair hands its contribution to the other, which stands for their term. In
// round i the ranks that stand for terms exchange partial results with the term whose number
// differs in bit i. Then the result is handed back in each pair.
struct DoublingPlan {
  struct Round {
    int peer;
    bool is_left;  // this rank's partial result is that of the lower block
  };

  DoublingPlan(int rank, const SumTree& tree) {
    if (tree.is_paired(rank)) partner = rank ^ 1;
    has_term = tree.stands_for_term(rank);
    if (!has_term) return;
    const int term = tree.term_of(rank);
    for (int bit = 1; bit < tree.terms(); bit *= 2) {
      rounds.push_back({tree.rank_of(term ^ bit), (term & bit) == 0});
    }
  }

  bool has_partner() const { return partner >= 0; }
  bool partner_is_left() const { return partner % 2 == 0; }  // the even rank of a pair

  int partner = -1;      // the other rank of the pair
  bool has_term = true;  // false: the partner takes part in the rounds for both
  std::vector<Round> rounds;
};

}  // namespace trireme
