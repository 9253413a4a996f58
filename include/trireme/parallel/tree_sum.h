// A sum along the tree T(n), of terms that come one after the other.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::parallel {

// Adds flat fp32 tensors along T(count) (trireme/comm/sum_tree.h). Partial sums wait in memory of
// its own.
class TreeSum {
 public:
  // The number of tensors that hold a sum of `count` terms and its partial sums, with the result:
  // log2(count) rounded up, at least 1.
  static int tensors(int count);

  // count >= 1. All terms have so many elements. Allocates the memory, as gradients. With `result`,
  // which has as many elements, the sum will be there, and partial sums wait there before.
  TreeSum(ops::Context& ctx, std::int64_t elements, int count, const Tensor& result = {});
  // In memory of (tensors(count) * elements) fp32.
  TreeSum(const Tensor& memory, std::int64_t elements, int count);

  void begin() { added_ = 0; }
  // Adds the next term. Returns true with the last one: then `term` holds the sum, or `result` if
  // there is one. Otherwise its contents are undefined, and its memory is free for the next term.
  bool add(ops::Context& ctx, const Tensor& term);

 private:
  template <class Allocate>
  void hold(Allocate allocate);

  int count_;
  int added_ = 0;
  Tensor result_;         // or undefined
  Tensor first_of_pair_;  // undefined if T(count) has no pairs
  Tensors waiting_;       // by level: the sum of 2^level neighbouring terms of the tree
};

}  // namespace trireme::parallel
