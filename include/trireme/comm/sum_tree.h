// The tree T(p) along which the contributions of p ranks are reduced, whatever algorithm carries
// them (README.md, "Order of sums"). So the bits of a result depend on the contributions alone.
//
// Let q be the largest power of two not above p, and e = p - q. The first 2e ranks are reduced in
// pairs (0 with 1, 2 with 3, ...), which leaves q terms in the order of ranks. Then neighbouring
// terms are reduced, and neighbouring results again, until one is left. The block of lower ranks is
// always the left operand.
#pragma once

#include <bit>
#include <vector>

namespace trireme {

class SumTree {
 public:
  explicit SumTree(int ranks)
      : terms_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        pairs_(ranks - terms_) {}

  int terms() const { return terms_; }  // q
  int pairs() const { return pairs_; }  // e: each of the terms 0 to e - 1 is a pair of ranks

  bool is_paired(int rank) const { return rank < 2 * pairs_; }
  // The even rank of a pair stands for the term.
  bool stands_for_term(int rank) const { return !is_paired(rank) || rank % 2 == 0; }
  int term_of(int rank) const { return is_paired(rank) ? rank / 2 : rank - pairs_; }
  int first_rank_of(int term) const { return term < pairs_ ? 2 * term : term + pairs_; }

 private:
  int terms_, pairs_;
};

// What one rank sends and receives when all ranks reduce by recursive doubling on the terms of
// T(p). The odd rank of a pair hands its contribution to the even rank. In round i the ranks that
// stand for terms exchange partial results with the term whose number differs in bit i. Then the
// even rank of a pair hands the result back.
struct DoublingPlan {
  struct Round {
    int peer;
    bool is_left;  // this rank's partial result is that of the lower block
  };

  DoublingPlan(int rank, int ranks) {
    const SumTree tree(ranks);
    if (tree.is_paired(rank)) partner = rank ^ 1;
    has_term = tree.stands_for_term(rank);
    if (!has_term) return;
    const int term = tree.term_of(rank);
    for (int bit = 1; bit < tree.terms(); bit *= 2) {
      rounds.push_back({tree.first_rank_of(term ^ bit), (term & bit) == 0});
    }
  }

  bool has_partner() const { return partner >= 0; }

  int partner = -1;      // the other rank of the pair
  bool has_term = true;  // false: the partner takes part in the rounds for both
  std::vector<Round> rounds;
};

}  // namespace trireme
