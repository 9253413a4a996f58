// Runs of micro-batches: who computes which, and that every way of adding them up is one tree.
#include "trireme/parallel/work_split.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce.h"
#include "trireme/parallel/tree_sum.h"

namespace trireme::parallel {
namespace {

using Values = std::vector<float>;

// The terms along the tree, as ranks add them.
Values along_tree(const std::vector<Values>& terms) {
  std::vector<const std::byte*> sources;
  for (const Values& term : terms) sources.push_back(reinterpret_cast<const std::byte*>(&term[0]));
  Values sum(terms.front().size());
  reduce_tree(ReduceOp::kSum, DType::kF32, sources, reinterpret_cast<std::byte*>(&sum[0]),
              sum.size());
  return sum;
}

// Terms whose sum depends on the order of additions.
std::vector<Values> make_terms(int count) {
  std::vector<Values> terms;
  for (int i = 0; i < count; ++i) {
    Values& term = terms.emplace_back();
    for (int j = 0; j < 40; ++j) {
      term.push_back(static_cast<float>((i * 7919 + j * 104729) % 1009 - 504) / 37.0f);
    }
  }
  return terms;
}

Values sum_one_by_one(const std::vector<Values>& terms, int steps = 1, bool elsewhere = false) {
  ops::Context ctx = ops::make_cpu_context(1);
  Values term(terms.front().size()), result(elsewhere ? term.size() : 0);
  const Tensor there = elsewhere ? Tensor::wrap(std::span(result)) : Tensor();
  const auto count = static_cast<unsigned>(terms.size());
  TreeSum sum(ctx, std::ssize(terms.front()), static_cast<int>(count), there);
  // Partial sums wait in the memory of the result too.
  const std::size_t waiting = std::bit_width(count) - (std::has_single_bit(count) ? 1 : 0);
  EXPECT_EQ(ctx.allocator->stats().live[static_cast<std::size_t>(MemoryUse::kGradients)] > 0,
            waiting > (elsewhere ? 1 : 0));
  EXPECT_EQ(TreeSum::tensors(static_cast<int>(count)), std::max<int>(1, static_cast<int>(waiting)));
  for (int step = 0; step < steps; ++step) {
    sum.begin();
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::ranges::copy(terms[i], term.begin());
      EXPECT_EQ(sum.add(ctx, Tensor::wrap(std::span(term))), i + 1 == terms.size());
    }
  }
  return elsewhere ? result : term;
}

TEST(TreeSum, AddsAlongTheTreeOfRanks) {
  for (int count = 1; count <= 33; ++count) {
    const std::vector<Values> terms = make_terms(count);
    for (const bool elsewhere : {false, true}) {
      EXPECT_EQ(sum_one_by_one(terms, 1, elsewhere), along_tree(terms)) << count;
      EXPECT_EQ(sum_one_by_one(terms, 2, elsewhere), along_tree(terms)) << count;
    }
  }
  const std::vector<Values> terms = make_terms(16);
  Values in_order = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) {
    for (std::size_t j = 0; j < in_order.size(); ++j) in_order[j] += terms[i][j];
  }
  EXPECT_NE(sum_one_by_one(terms), in_order);  // the terms tell orders apart
}

TEST(TreeSum, RefusesATermTooMany) {
  ops::Context ctx = ops::make_cpu_context(1);
  TreeSum sum(ctx, 1, 1);
  Values term{1.0f};
  EXPECT_TRUE(sum.add(ctx, Tensor::wrap(std::span(term))));
  EXPECT_THROW(sum.add(ctx, Tensor::wrap(std::span(term))), InternalError);
}

// The sum over replicas as the reducer makes it.
Values sum_over_replicas(const WorkSplit& work, const std::vector<Values>& terms) {
  const int each = work.runs(), replicas = work.replicas();
  const auto term = [&](int replica, int i) {  // one micro-batch in each run
    return terms[static_cast<std::size_t>(work.micro(replica, i).number)];
  };
  std::vector<Values> partial;
  const bool in_rounds = work.reduces_each();
  for (int outer = 0; outer < (in_rounds ? each : replicas); ++outer) {
    std::vector<Values> inside;
    for (int inner = 0; inner < (in_rounds ? replicas : each); ++inner) {
      inside.push_back(in_rounds ? term(inner, outer) : term(outer, inner));
    }
    partial.push_back(in_rounds ? along_tree(inside) : sum_one_by_one(inside));
  }
  return in_rounds ? sum_one_by_one(partial) : along_tree(partial);
}

TEST(WorkSplit, EveryWayOfDealingAddsAlongOneTree) {
  int in_rounds = 0, in_blocks = 0;
  for (int runs = 1; runs <= 24; ++runs) {
    const std::vector<Values> terms = make_terms(runs);
    for (int replicas = 1; replicas <= runs; ++replicas) {
      const std::vector<int> possible = possible_batch_runs(runs, replicas);
      if (!std::ranges::binary_search(possible, runs)) continue;
      for (const bool reduces_each : {false, true}) {
        const auto work = WorkSplit::even(runs, replicas, {runs, reduces_each});
        ++(work.reduces_each() ? in_rounds : in_blocks);
        EXPECT_EQ(sum_over_replicas(work, terms), along_tree(terms))
            << runs << " runs, " << replicas << " replicas, " << reduces_each;
      }
    }
  }
  EXPECT_GT(in_rounds, 20);
  EXPECT_GT(in_blocks, 20);
}

std::vector<int> numbers_of(const WorkSplit& work, int replica) {
  std::vector<int> numbers;
  for (const Micro& one : work.of(replica)) numbers.push_back(one.number);
  return numbers;
}

TEST(WorkSplit, MicroBatchesThatBelongTogetherAreDealtOneByOne) {
  for (const bool reduces_each : {false, true}) {
    EXPECT_EQ(numbers_of(WorkSplit::even(6, 3, {0, reduces_each, true}), 1),
              (std::vector<int>{1, 4}));
  }
  // Rounds of runs of one micro-batch do the same.
  const std::vector<int> odd{1, 3, 5, 7};
  EXPECT_EQ(numbers_of(WorkSplit::even(8, 2, {8, true, true}), 1), odd);
  EXPECT_EQ(numbers_of(WorkSplit::even(8, 2, {8, true}), 1), odd);
}

TEST(WorkSplit, EveryMicroBatchIsDealtOnceAndRunsAreNeighbours) {
  for (const int runs : {0, 4, 8, 12}) {
    for (const int replicas : {1, 2, 4}) {
      for (const bool reduces_each : {false, true}) {
        const auto work = WorkSplit::even(24, replicas, {runs, reduces_each});
        EXPECT_EQ(work.runs_of_step(), runs == 0 ? replicas : runs);
        std::vector<int> all;
        for (int replica = 0; replica < replicas; ++replica) {
          const std::vector<int> mine = numbers_of(work, replica);
          EXPECT_EQ(std::ssize(mine), work.count(replica));
          EXPECT_TRUE(std::ranges::is_sorted(mine));
          const int length = runs == 0 ? 24 / replicas : 24 / runs;
          for (std::size_t i = 0; i < mine.size(); ++i) {
            const auto place = static_cast<int>(i) % length;
            EXPECT_EQ(work.micro(replica, static_cast<int>(i)).run, static_cast<int>(i) / length);
            EXPECT_EQ(mine[i] % length, place);
            if (place > 0) {
              EXPECT_EQ(mine[i], mine[i - 1] + 1);
            }
          }
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::ranges::sort(all);
        std::vector<int> expected(24);
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
      }
    }
  }
}

TEST(WorkSplit, SharesDifferByOneAtMostAndTheLastHasTheMost) {
  for (int replicas = 1; replicas <= 7; ++replicas) {
    for (int micro_batches = replicas; micro_batches <= 30; ++micro_batches) {
      const auto work = WorkSplit::even(micro_batches, replicas);
      int next = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        EXPECT_EQ(work.micro(replica, 0).number, next);  // neighbours
        next += work.count(replica);
        EXPECT_LE(work.count(replica), work.most());
        EXPECT_GE(work.count(replica), work.most() - 1);
        EXPECT_THROW(static_cast<void>(work.micro(replica, work.count(replica))), InternalError);
      }
      EXPECT_EQ(next, micro_batches);
      const WorkSplit shorter =
          WorkSplit::even(micro_batches + 2 * replicas, replicas).shortened(2);
      for (int replica = 0; replica < replicas; ++replica) {
        EXPECT_EQ(shorter.count(replica), work.count(replica));
      }
    }
  }
}

TEST(WorkSplit, SharesOfUnequalReplicasAreNeighbours) {
  for (const int runs : {0, 3}) {
    const auto work = WorkSplit::of_shares({4, 1, 2}, {runs});
    EXPECT_EQ(work.micro_batches(), 7);
    EXPECT_EQ(work.runs_of_step(), 3);
    EXPECT_EQ(work.most(), 4);
    EXPECT_EQ(work.least(), 1);
    EXPECT_FALSE(work.reduces_each());
    EXPECT_EQ(numbers_of(work, 0), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(numbers_of(work, 1), (std::vector<int>{4}));
    EXPECT_EQ(numbers_of(work, 2), (std::vector<int>{5, 6}));
    EXPECT_EQ(work.micro(2, 1).run, 0);
    const WorkSplit shorter = work.shortened(2);  // the largest as much shorter as it is to be
    EXPECT_EQ(shorter.count(0), 2);
    EXPECT_EQ(shorter.count(1), 1);
    EXPECT_EQ(shorter.micro_batches(), 4);
  }
  EXPECT_THROW(WorkSplit::of_shares({4, 0}), InternalError);
  EXPECT_THROW(WorkSplit::of_shares({4, 4}, {8}), InternalError);
}

TEST(WorkSplit, PossibleNumbers) {
  using Numbers = std::vector<int>;
  EXPECT_EQ(possible_batch_runs(8, 2), (Numbers{2, 4, 8}));
  EXPECT_EQ(possible_batch_runs(12, 4), (Numbers{4, 12}));
  EXPECT_EQ(possible_batch_runs(12, 1), (Numbers{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(possible_batch_runs(36, 3),
            (Numbers{3, 6, 12}));                      // not 9, 18, 36: neither way adds them
  EXPECT_EQ(possible_batch_runs(7, 3), (Numbers{3}));  // shares that differ
  EXPECT_EQ(possible_batch_runs(8, 8), (Numbers{8}));
}

}  // namespace
}  // namespace trireme::parallel
