// The heap of each simulated rank. A program that links rank_heap.cc has operators new and delete
// that count.
#pragma once

#include <cstdint>

namespace trireme::testing {

// The largest number of bytes that any rank of a simulated world had at one time since the last
// call with `begin_anew`. 0 with a sanitizer, which has operators of its own.
std::int64_t worst_rank_heap(bool begin_anew = false);

}  // namespace trireme::testing
