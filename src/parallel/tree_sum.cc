#include "trireme/parallel/tree_sum.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "trireme/comm/sum_tree.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::parallel {

int TreeSum::tensors(int count) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1))));
}

TreeSum::TreeSum(ops::Context& ctx, std::int64_t elements, int count, const Tensor& result)
    : count_(count), result_(result) {
  hold([&, lent = result]() mutable {
    if (lent.defined()) return std::exchange(lent, {});
    return ctx.allocate({elements}, DType::kF32, MemoryUse::kGradients);
  });
}

TreeSum::TreeSum(const Tensor& memory, std::int64_t elements, int count) : count_(count) {
  hold([&, begin = std::int64_t{0}]() mutable {
    begin += elements;
    return memory.flat_range(begin - elements, begin);
  });
}

template <class Allocate>
void TreeSum::hold(Allocate allocate) {
  const SumTree tree(count_);
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
  // The memory of the result waits for nothing by the time of the last addition.
  const bool last = added_ == count_;
  for (std::size_t level = 0; level < to; ++level) {
    const bool whole = last && level + 1 == to && result_.defined();
    ops::add(ctx, waiting_[level], term, whole ? result_ : term);
  }
  if (last && to == 0 && result_.defined()) copy(term, result_, ctx.stream);
  if (last) return true;
  copy(term, waiting_[to], ctx.stream);
  return false;
}

}  // namespace trireme::parallel
