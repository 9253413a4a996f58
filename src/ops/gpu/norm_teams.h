// How rows are dealt to threads in the backward of norms, and in column sums of the same rows.
#pragma once

#include <algorithm>

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

// The blocks that take rows of whole aligned chunks, up to kMostColumns of them, and read each
// once: a team of `lanes` threads takes a row, a block `teams` rows at a time. A thread has one
// chunk of a row, so that two blocks fit on a multiprocessor, or two. Sums over rows add up each
// team's rows, then the teams': also where other kernels make them, so that all have the same bits.
struct NormTeams {
  static constexpr std::int64_t kMostColumns = 8192;
  static constexpr int kThreads = 384, kThreadsOfTwo = 512, kMostWarps = kThreadsOfTwo / 32;
  bool fits, two;  // chunks of a thread
  int lanes, teams;

  explicit NormTeams(std::int64_t columns)
      : fits(columns % kChunk == 0 && columns <= kMostColumns), two(columns > kThreads * kChunk) {
    const int threads = two ? kThreadsOfTwo : kThreads;
    const std::int64_t of_row = fits ? blocks_for(columns, two ? 2 * kChunk : kChunk) : 0;
    lanes = static_cast<int>(std::max<std::int64_t>(blocks_for(of_row, 32) * 32, 32));
    teams = std::min(threads / lanes, kRowsAtOnce);
  }
  dim3 block() const { return dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(teams)); }
  // The block of a kernel that makes sums over rows with sum_part.
  static dim3 block_of_sums(std::int64_t columns) {
    const NormTeams of(columns);
    if (!of.fits) return chunk_block(columns);
    return dim3(chunk_lanes(columns), static_cast<unsigned>(of.teams));
  }
};

}  // namespace trireme::ops::gpu
