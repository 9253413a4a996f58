#include "trireme/parallel/tree_sum.h"

#include <bit>

#include "trireme/comm/sum_tree.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::parallel {

TreeSum::TreeSum(ops::Context& ctx, std::int64_t elements, int count) : count_(count) {
  const SumTree tree(count);
  const auto allocate = [&] {
    return ctx.allocate({elements}, DType::kF32, MemoryUse::kGradients);
  };
  if (tree.pairs() > 0) first_of_pair_ = allocate();
  for (int terms = 1; terms < tree.terms(); terms *= 2) waiting_.push_back(allocate());
}

bool TreeSum::add(ops::Context& ctx, const Tensor& term) {
  TRIREME_CHECK(added_ < count_, "a sum along a tree gets more terms than it has");
  const SumTree tree(count_);
  const int number = added_++;
  if (tree.is_paired(number)) {
    if (number % 2 == 0) {
      copy(term, first_of_pair_, ctx.stream);
      return false;
    }
    ops::add(ctx, first_of_pair_, term, term);
  }
  // Sums wait on levels 0, 1, ..., `to` - 1. The new one is added to all of them, and waits on
  // level `to` for its neighbour.
  const auto of_tree = static_cast<unsigned>(tree.term_of(number));
  const auto to = static_cast<std::size_t>(std::countr_one(of_tree));
  for (std::size_t level = 0; level < to; ++level) ops::add(ctx, waiting_[level], term, term);
  if (added_ == count_) return true;
  copy(term, waiting_[to], ctx.stream);
  return false;
}

}  // namespace trireme::parallel
