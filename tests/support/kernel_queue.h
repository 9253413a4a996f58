// What a program decides about the emulator of kernels (block_emulator.h, whose names of CUDA's do
// not go with CUDA's own headers).
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::emulator {

using Queue = std::function<void(void* stream, std::function<void()> kernel)>;
void set_queue(Queue queue);
void set_order(std::uint64_t seed);

}  // namespace trireme::emulator
