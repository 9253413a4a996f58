#include "trireme/base/tensor_checksum.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

constexpr std::uint64_t kBlock = 4096;  // words

// The finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014), made odd.
constexpr std::uint64_t mix(std::uint64_t n) {
  n += 0x9E3779B97F4A7C15u;
  n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9u;
  n = (n ^ (n >> 27)) * 0x94D049BB133111EBu;
  return (n ^ (n >> 31)) | 1u;
}

constexpr std::array<std::uint64_t, kBlock> make_keys() {
  std::array<std::uint64_t, kBlock> keys{};
  for (std::uint64_t i = 0; i < kBlock; ++i) keys[i] = mix(i);
  return keys;
}

constexpr std::array<std::uint64_t, kBlock> kKeys = make_keys();

}  // namespace

std::uint64_t tensor_checksum(std::span<const std::uint32_t> words, std::uint64_t first) {
  std::uint64_t sum = 0;
  while (!words.empty()) {
    const std::uint64_t at = first % kBlock;
    const std::size_t count = std::min<std::size_t>(words.size(), kBlock - at);
    std::uint64_t part = 0;
    for (std::size_t i = 0; i < count; ++i) part += kKeys[at + i] * words[i];
    sum += mix((std::uint64_t{1} << 32) + first / kBlock) * part;
    first += count;
    words = words.subspan(count);
  }
  return sum;
}

}  // namespace trireme
