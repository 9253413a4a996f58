#include "support/rank_heap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "trireme/topology/simulated_ranks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace trireme::testing {

std::int64_t worst_rank_heap(bool /*begin_anew*/) {
  return 0;
}

}  // namespace trireme::testing

#else

namespace trireme::testing {
namespace {

constexpr std::size_t kRanks = 4096;

// Stands in front of each block. Ranks run in one thread; blocks of other threads belong to no
// rank.
struct alignas(std::max_align_t) Header {
  std::size_t bytes;
  int rank;
};

std::array<std::int64_t, kRanks> held{};
std::int64_t worst = 0;

}  // namespace

std::int64_t worst_rank_heap(bool begin_anew) {
  const std::int64_t result = worst;
  if (begin_anew) {
    held.fill(0);
    worst = 0;
  }
  return result;
}

}  // namespace trireme::testing

void* operator new(std::size_t bytes) {
  using namespace trireme::testing;
  auto* const header = static_cast<Header*>(std::malloc(bytes + sizeof(Header)));
  if (header == nullptr) throw std::bad_alloc();
  header->bytes = bytes;
  header->rank = trireme::running_simulated_rank();
  if (header->rank >= 0) {
    std::int64_t& mine = held.at(static_cast<std::size_t>(header->rank));
    mine += static_cast<std::int64_t>(bytes);
    worst = std::max(worst, mine);
  }
  return header + 1;
}

void operator delete(void* memory) noexcept {
  using namespace trireme::testing;
  if (memory == nullptr) return;
  Header* const header = static_cast<Header*>(memory) - 1;
  if (header->rank >= 0) {
    held[static_cast<std::size_t>(header->rank)] -= static_cast<std::int64_t>(header->bytes);
  }
  std::free(header);
}

void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  operator delete(memory);
}

#endif
