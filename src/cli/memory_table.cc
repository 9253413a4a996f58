#include "cli/memory_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/setup/memory_check.h"

namespace trireme::cli {
namespace {

std::size_t held(const plan::DryRunResult& result, MemoryUse use) {
  return result.memory.at_peak[static_cast<std::size_t>(use)];
}

}  // namespace

std::string point_text(const MemoryPoint& point) {
  if (point.number < 0) return std::string(point.name);
  return fmt::format("{} of micro-batch {}", point.name, point.number);
}

void print_memory(const GridShape& grid, const std::vector<plan::DryRunResult>& results) {
  print_line(
      fmt::format("{:>5} {:>6} {:>6} {:>7} {:>11} {:>10} {:>10} {:>12} {:>10} {:>9} {:>9}  {}",
                  "stage", "tensor", "ranks", "batches", "parameters", "gradients", "optimizer",
                  "activations", "workspace", "all", "taken", "when"));
  const auto mib = [](std::size_t bytes) { return mib_of(static_cast<double>(bytes)); };
  for (const plan::DryRunResult& result : results) {
    print_line(fmt::format(
        "{:>5} {:>6} {:>6} {:>7} {:>11} {:>10} {:>10} {:>12} {:>10} {:>9} {:>9}  {}",
        grid.index(result.place, Axis::kPipeline), grid.index(result.place, Axis::kTensor),
        result.ranks, result.micro_batches, mib(held(result, MemoryUse::kParameters)),
        mib(held(result, MemoryUse::kGradients)), mib(held(result, MemoryUse::kOptimizer)),
        mib(held(result, MemoryUse::kActivations)), mib(held(result, MemoryUse::kWorkspace)),
        mib(result.memory.total_peak), mib(result.memory.reserved),
        point_text(result.memory.peak_point)));
  }
  const plan::NcclMemory& nccl =
      std::ranges::max_element(results, {}, [](const plan::DryRunResult& result) {
        return result.nccl.bytes;
      })->nccl;
  if (nccl.communicators > 0) print_line(words_on(nccl));
}

}  // namespace trireme::cli
