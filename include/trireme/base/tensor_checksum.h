// The checksum of a tensor's data. It does not depend on how the tensor is split: the checksums of
// disjoint parts add up to the checksum of the whole.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// Returns the sum over i of key(first + i) * word i, modulo 2^64. The tensor is a sequence of
// little-endian 32-bit words. key(p) = mix(2^32 + p / 4096) * mix(p % 4096) with
// mix(n) = splitmix64(n) | 1. All keys are odd, so a change of any one word always changes the sum.
// Any other damage (words swapped or moved, blocks zeroed or from elsewhere) goes undetected with a
// probability of about 2^-32 at most. It takes one multiplication per word, so it runs at memory
// speed.
std::uint64_t tensor_checksum(std::span<const std::uint32_t> words, std::uint64_t first);

}  // namespace trireme
