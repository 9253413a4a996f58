// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC11). A draw is a pure function of key and counter, so every rank, thread and device
// that asks for the same element gets the same number.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

using Philox4 = std::array<std::uint32_t, 4>;

constexpr Philox4 philox4x32(Philox4 counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Derives a 64-bit key for one purpose from the run's seed and a name ("dropout",
// "blocks.3.mlp.up.weight").
std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose);

// Uniform in (0, 1], from the high 24 bits. Exact in float, never zero.
constexpr float philox_uniform(std::uint32_t bits) {
  return (static_cast<float>(bits >> 8) + 1.0f) * 0x1p-24f;
}

// Element `index` of the stream `key`: uniform in (0, 1].
constexpr float philox_uniform_at(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t block = index / 4;
  const Philox4 draw = philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
  return philox_uniform(draw[index % 4]);
}

// Element `index` of the stream `key`: standard normal (Box-Muller).
float philox_normal_at(std::uint64_t key, std::uint64_t index);
// Writes elements `first`, first + 1, ... of that stream to `to`: the same bits as
// philox_normal_at, with a quarter of the draws.
void philox_normals(std::uint64_t key, std::uint64_t first, std::span<float> to);

// A keyed pseudo-random permutation of [0, count): returns where `index` goes; 0 <= index < count.
// It is a Feistel network with cycle walking. It needs no table, so a position in a shuffled data
// set is one number.
std::uint64_t permuted_index(std::uint64_t key, std::uint64_t count, std::uint64_t index);

}  // namespace trireme
