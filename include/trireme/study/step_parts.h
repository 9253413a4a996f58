// A training step taken apart: by operation, and on a GPU by kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ops/operation_counts.h"
#include "trireme/tensor/kernel_trace.h"
#include "trireme/tensor/nvml.h"

namespace trireme::bench {

struct Roof;  // bench.h

// What the calls of a step with the same name add up to, a mean over steps.
struct StepPart {
  std::string name;
  double calls = 0.0;
  double seconds = 0.0;
  double flops = 0.0, bytes = 0.0;  // 0: not known

  // The least seconds that they can take; nothing where neither is known.
  std::optional<double> floor(const Roof& roof) const;
};

struct StepParts {
  std::vector<StepPart> parts = {};  // the longest first
  double step = 0.0;                 // seconds of the whole step
  // Where the parts are kernels: seconds in which none ran, between the first one's begin and the
  // last one's end.
  std::optional<double> gaps = {};
  std::uint64_t lost = 0;  // records of kernels that are missing, of all steps together

  double sum() const;  // seconds
};

// What `times` has of so many steps, each of `step` seconds. Operations are apart by type and sizes
// (ProgramEntry): "matmul fp32 64 x 48 x 32 x 1".
StepParts operation_parts(const ops::OperationTimes& times, int steps, double step);

// What is left of a kernel's name: demangled, without result, parameters and namespaces.
std::string short_kernel_name(const std::string& mangled);

// Adds up the records of steps. Kernels, copies and fills are apart by their whole names.
class KernelSum {
 public:
  // `operations`: that the records' numbers count, from 1 on. Several kernels of one share its
  // FLOPs and bytes by their time.
  void add(const cuda::KernelRecords& records, double step_seconds,
           std::span<const ops::OperationTimes::Key> operations = {});
  // The mean of what was added, of at least one step.
  StepParts mean() const;

 private:
  std::map<std::string, StepPart> parts_;  // by the name in the records
  int steps_ = 0;
  double seconds_ = 0.0, gaps_ = 0.0;
  std::uint64_t lost_ = 0;
};

struct KernelParts {
  std::optional<StepParts> parts = {};
  std::string why_not = {};  // one line, if there are none
};
using OpenTrace = std::function<std::unique_ptr<cuda::KernelTrace>()>;
// Runs a step to its end and returns its seconds. Calls `begin` when earlier work is done and
// nothing of the step is queued. `operations`: the context's while the step is queued; null where
// nothing is traced.
using TracedStep = std::function<double(const std::function<void()>& begin,
                                        const std::shared_ptr<ops::OperationTimes>& operations)>;
// Runs the step once as a warm-up of the trace and `steps` times more, also where kernels cannot be
// traced, since other ranks take part in it.
KernelParts kernel_parts(const OpenTrace& open, int steps, const TracedStep& step);

// A GPU while it runs steps: medians over samples, as NVML says it.
struct GpuState {
  std::optional<double> clock, max_clock;                // MHz, of the multiprocessors
  std::optional<double> power;                           // watts
  bool slowed_by_heat = false, slowed_by_power = false;  // in any sample
  std::string why_not;                                   // one line, if nothing is known
};
// `reports`: the samples. `pci_bus_id`: of the GPU, as sysfs writes it.
GpuState gpu_state(const std::vector<cuda::HealthReport>& reports, std::string_view pci_bus_id);

// The table as lines, with the least time of each part by the roof of one rank: the longest parts
// alone, the others in a line, then their sum beside the step. `what`: "operation" or "kernel".
std::vector<std::string> parts_table(std::string_view what, const StepParts& parts,
                                     const Roof& roof);
// "GPU: 1755 of 1980 MHz, 642 W", or why nothing is known.
std::string gpu_state_text(const GpuState& state);

}  // namespace trireme::bench
