// Loops over threads. How work is cut into blocks never follows the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/ops/context.h"

namespace trireme::ops::cpu {

// Calls body(block) for block 0 to count - 1, shared out among the context's threads. The body must
// not throw where threads run it: what can fail (allocation) is done before.
template <class Body>
void parallel_for(const Context& ctx, std::int64_t count, const Body& body) {
#ifdef _OPENMP
  const auto threads = static_cast<int>(std::min<std::int64_t>(ctx.threads, count));
  if (threads > 1) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (std::int64_t block = 0; block < count; ++block) body(block);
    return;
  }
#else
  static_cast<void>(ctx);
#endif
  for (std::int64_t block = 0; block < count; ++block) body(block);
}

// The same where blocks take unequal time: a thread takes the next block when it is free.
template <class Body>
void parallel_for_uneven(const Context& ctx, std::int64_t count, const Body& body) {
#ifdef _OPENMP
  const auto threads = static_cast<int>(std::min<std::int64_t>(ctx.threads, count));
  if (threads > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t block = 0; block < count; ++block) body(block);
    return;
  }
#else
  static_cast<void>(ctx);
#endif
  for (std::int64_t block = 0; block < count; ++block) body(block);
}

// Calls body(begin, end) for ranges of `grain` items that cover [0, count).
template <class Body>
void parallel_ranges(const Context& ctx, std::int64_t count, std::int64_t grain, const Body& body) {
  parallel_for(ctx, (count + grain - 1) / grain, [&](std::int64_t block) {
    body(block * grain, std::min(count, (block + 1) * grain));
  });
}

// The number of the calling thread within a parallel loop, below Context::threads.
int thread_number();

// Rows of `columns` elements that are worth the start of a thread.
inline std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, columns));
}

}  // namespace trireme::ops::cpu
