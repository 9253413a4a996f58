// Loops over threads. The division of work into blocks never depends on the number of threads. On a
// dry context the loops do nothing: all that a CPU operation reads or writes in tensors, it reads
// or writes inside of one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/ops/context.h"

namespace trireme::ops::cpu {

// The number of elements that is worth the start of a thread.
inline constexpr std::int64_t kElementGrain = 16384;

// Calls body(block) for block 0 to count - 1, divided among the context's threads. The body must
// not throw if several threads run it: do what can fail (allocation) before.
template <class Body>
void parallel_for(const Context& ctx, std::int64_t count, const Body& body) {
  if (ctx.dry) return;
#ifdef _OPENMP
  const auto threads = static_cast<int>(std::min<std::int64_t>(ctx.threads, count));
  if (threads > 1) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (std::int64_t block = 0; block < count; ++block) body(block);
    return;
  }
#endif
  for (std::int64_t block = 0; block < count; ++block) body(block);
}

// The same for blocks that take unequal time: a thread takes the next block when it is free.
template <class Body>
void parallel_for_uneven(const Context& ctx, std::int64_t count, const Body& body) {
  if (ctx.dry) return;
#ifdef _OPENMP
  const auto threads = static_cast<int>(std::min<std::int64_t>(ctx.threads, count));
  if (threads > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t block = 0; block < count; ++block) body(block);
    return;
  }
#endif
  for (std::int64_t block = 0; block < count; ++block) body(block);
}

// Calls body() on the calling thread.
template <class Body>
void on_this_thread(const Context& ctx, const Body& body) {
  if (!ctx.dry) body();
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

// The number of rows of `columns` elements that is worth the start of a thread.
inline std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, columns));
}

}  // namespace trireme::ops::cpu
