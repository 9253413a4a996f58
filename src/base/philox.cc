#include "trireme/base/philox.h"

#include <bit>
#include <cmath>

namespace trireme {
namespace {

// One block of four draws gives four normals: two Box-Muller pairs.
Philox4 draws_of_normals(std::uint64_t key, std::uint64_t block) {
  return philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 1, 0}, key);
}

std::array<float, 2> normal_pair(std::uint32_t first, std::uint32_t second) {
  const double radius = std::sqrt(-2.0 * std::log(double{philox_uniform(first)}));
  const double angle = 2.0 * 3.14159265358979323846 * double{philox_uniform(second)};
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace

std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const Philox4 mixed = philox4x32(
      {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0x7472, 0x6972},
      seed);
  return (std::uint64_t{mixed[1]} << 32) | mixed[0];
}

float philox_normal_at(std::uint64_t key, std::uint64_t index) {
  const Philox4 draw = draws_of_normals(key, index / 4);
  const std::size_t first = index % 4 / 2 * 2;
  return normal_pair(draw[first], draw[first + 1])[index % 2];
}

void philox_normals(std::uint64_t key, std::uint64_t first, std::span<float> to) {
  Philox4 draw{};
  std::array<float, 2> pair{};
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 4 == 0) draw = draws_of_normals(key, index / 4);
    const std::size_t half = index % 4 / 2 * 2;
    if (i == 0 || index % 2 == 0) pair = normal_pair(draw[half], draw[half + 1]);
    to[i] = pair[index % 2];
  }
}

std::uint64_t permuted_index(std::uint64_t key, std::uint64_t count, std::uint64_t index) {
  if (count <= 1) return 0;
  // Smallest even number of bits that holds count: at most three walks on average.
  const int bits = (std::bit_width(count - 1) + 1) / 2 * 2;
  const int half = bits / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint32_t round = 0; round < 6; ++round) {
      const Philox4 draw = philox4x32(
          {static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(right >> 32), round, 2},
          key);
      const std::uint64_t mixed = ((std::uint64_t{draw[1]} << 32) | draw[0]) & mask;
      const std::uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

}  // namespace trireme
