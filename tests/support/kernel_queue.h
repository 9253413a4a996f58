// Settings of the kernel emulator for a program. They are apart from block_emulator.h, whose CUDA
// names conflict with CUDA's own headers.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::emulator {

using Queue = std::function<void(void* stream, std::function<void()> kernel)>;
void set_queue(Queue queue);
void set_order(std::uint64_t seed);

}  // namespace trireme::emulator
