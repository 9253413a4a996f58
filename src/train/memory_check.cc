#include "trireme/train/memory_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/resident_memory.h"

namespace trireme {
namespace {

std::string by_use(const MemoryEstimate& memory) {
  return fmt::format("{} parameters, {} gradients, {} optimizer, {} activations",
                     mib_of(memory.parameters), mib_of(memory.gradients), mib_of(memory.optimizer),
                     mib_of(memory.activations));
}

void check_node(const MemoryEstimate& memory, int tasks, std::int64_t node_mib, double times) {
  const double rank = memory.total() + kProcessBytes;
  const std::int64_t needed = mib_of(rank * tasks);
  if (static_cast<double>(needed) <= times * static_cast<double>(node_mib)) return;
  throw ConfigError(fmt::format(
      "memory: {} ranks a node need about {} MiB ({} each: {}, {} program), a node has {}: fewer "
      "tasks a node, a smaller batch.micro, or more grid.tensor or grid.pipeline",
      tasks, needed, mib_of(rank), by_use(memory), mib_of(kProcessBytes), node_mib));
}

void check_gpu(const MemoryEstimate& memory, std::int64_t gpu_mib, double times) {
  if (static_cast<double>(mib_of(memory.total())) <= times * static_cast<double>(gpu_mib)) return;
  throw ConfigError(fmt::format(
      "memory: a rank needs about {} MiB of its GPU ({}), which has {}: a smaller batch.micro, or "
      "more grid.tensor or grid.pipeline",
      mib_of(memory.total()), by_use(memory), gpu_mib));
}

}  // namespace

void check_node_memory(const MemoryEstimate& memory, int tasks, std::int64_t node_mib) {
  check_node(memory, tasks, node_mib, 1.0);
}

void check_gpu_memory(const MemoryEstimate& memory, std::int64_t gpu_mib) {
  check_gpu(memory, gpu_mib, 1.0);
}

void check_memory_here(const MemoryEstimate& memory, const Runtime& runtime,
                       const ops::Context& ctx) {
  constexpr double kDoubt = 2.0;
  if (ctx.device.kind == DeviceKind::kCpu) {
    check_node(memory, runtime.local_size(), mib_of(physical_memory_bytes()), kDoubt);
  } else {
    const auto bytes = static_cast<double>(ctx.cuda->properties(ctx.device.index).memory);
    check_gpu(memory, mib_of(bytes), kDoubt);
  }
}

MemoryEstimate without_training(MemoryEstimate memory) {
  memory.gradients = memory.optimizer = 0.0;
  return memory;
}

}  // namespace trireme
