// Reduces what several ranks have given to the value of a subtree of T(p) (sum_tree.h), whichever
// whole subtrees of it they have reduced already.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "trireme/comm/transport.h"

#include "comm/collectives/tier_plan.h"

namespace trireme {

// The value of a subtree: a contribution of the tensor's type, or a partial result.
struct SubtreeValue {
  Subtree subtree;
  const std::byte* data;
  DType type;
};

// Values are in the order of T(p) and do not overlap, so those in a subtree follow one another.
// Returns the end of those in the subtree, of which the first is at `first`.
std::size_t end_of(const Subtree& subtree, std::span<const SubtreeValue> values, std::size_t first);

class SubtreeSum {
 public:
  // The transport must outlive it.
  SubtreeSum(Transport& transport, const SumTree& tree, ReduceOp op, DType partial_type)
      : transport_(transport), tree_(tree), op_(op), partial_type_(partial_type) {}

  // Reduces `count` elements of the values, which make up the whole subtree, to `out`.
  void evaluate(const Subtree& subtree, std::span<const SubtreeValue> values, std::byte* out,
                DType out_type, std::size_t count) {
    evaluate(subtree, values, out, out_type, count, 0);
  }

 private:
  bool is_one_pass(std::span<const SubtreeValue> values) const;
  void evaluate(const Subtree& subtree, std::span<const SubtreeValue> values, std::byte* out,
                DType out_type, std::size_t count, std::size_t depth);
  // Returns where the value of one half of a subtree is, as partial_type_; `number` is that of the
  // scratch that it may take.
  const std::byte* half(const Subtree& subtree, std::span<const SubtreeValue> values,
                        std::size_t count, std::size_t depth, std::size_t number);

  Transport& transport_;
  SumTree tree_;
  ReduceOp op_;
  DType partial_type_;
  std::vector<std::pair<Buffer, std::size_t>> scratch_;  // with its length in bytes
};

}  // namespace trireme
