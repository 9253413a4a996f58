#include "trireme/study/describe_device.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/resident_memory.h"
#include "trireme/base/small_file.h"
#include "trireme/base/usual_threads.h"
#include "trireme/config/config.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/setup/step_setup.h"
#include "trireme/study/bench.h"
#include "trireme/study/conditions.h"

#include "described_work.h"
#include "overlap.h"

namespace trireme::bench {
namespace {

constexpr int kRounds = 3;
constexpr double kShareOfProducts = 0.3;  // of the time
constexpr double kLargestProduct = 0.05;  // seconds

// The mean of the middle half, of at least one value.
double middle_mean(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t cut = values.size() / 4;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(cut);
  const auto end = values.end() - static_cast<std::ptrdiff_t>(cut);
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

class Describer {
 public:
  Describer(Runtime& runtime, const ComputeDevice& device, const DescribeOptions& options)
      : runtime_(runtime), options_(options), ctx_(device.context) {
    using Clock = ops::OperationTimes::Clock;
    times_ =
        std::make_shared<ops::OperationTimes>(shares_processors() ? Clock::kThread : Clock::kWall);
  }

  plan::DeviceDescription run() {
    plan::DeviceDescription result = describe_machine();
    watch_ = Stopwatch();
    const double until_products = options_.seconds * kShareOfProducts;
    for (int round = 0; round < kRounds && before(until_products); ++round) {
      measure_products(result, until_products);
    }
    report(fmt::format("products measured after {:.0f} s", watch_.seconds()));
    for (int round = 0; round < kRounds && (round == 0 || before(options_.seconds)); ++round) {
      measure_steps(round);
      report(fmt::format("steps of models, round {} of {}, after {:.0f} s", round + 1, kRounds,
                         watch_.seconds()));
    }
    add_operations(result);
    if (!on_gpu() && runtime_.size() > 1) add_overlap(result);
    return result;
  }

 private:
  void report(const std::string& line) const {
    if (options_.report) options_.report(line);
  }
  bool on_gpu() const { return ctx_.cuda != nullptr; }
  // Whether the ranks of the node compute with more threads than there are processors.
  bool shares_processors() const {
    return !on_gpu() && runtime_.local_size() * ctx_.threads > usual_threads();
  }
  // Collective over the world, so that all ranks measure the same at the same time.
  bool before(double seconds) const { return runtime_.world().agree(watch_.seconds() < seconds); }

  plan::DeviceDescription describe_machine() {
    plan::DeviceDescription result;
    result.name = options_.name;
    result.gpu = on_gpu();
    result.ranks = runtime_.local_size();
    result.evidence = plan::Evidence::kMeasured;
    for (const DType type : options_.types) {
      Roof roof = measure_roof(runtime_.world(), ctx_, type);
      roof.flops /= runtime_.size();
      roof.bandwidth /= runtime_.size();
      result.peak[type] = roof.flops;
      result.memory_rate = std::max(result.memory_rate, roof.bandwidth);
      report(fmt::format("{}: {:.1f} GFLOP/s in a product, {:.1f} GB/s", name_of(type),
                         roof.flops * 1e-9, roof.bandwidth * 1e-9));
    }
    result.vector_peak = result.peak.begin()->second;
    // perf/RESULTS.md, "Planner: runs of ours".
    result.interval = on_gpu() ? 0.15 : 0.1;
    result.constants = {.product = 1.0, .memory = 1.0, .attention = 0.3, .start = 1e-6};
    if (on_gpu()) {
      const cuda::DeviceProperties properties = ctx_.cuda->properties(ctx_.device.index);
      result.title = properties.name;
      result.multiprocessors = properties.multiprocessors;
      result.memory = static_cast<double>(properties.memory);
      result.host_rate = host_rate();
    } else {
      const std::string processor =
          scaling::processor_in(read_small_file("the processor", "/proc/cpuinfo"));
      result.title = fmt::format("{}, {} thread{} of {} rank{}, {}", processor, ctx_.threads,
                                 ctx_.threads == 1 ? "" : "s", result.ranks,
                                 result.ranks == 1 ? "" : "s", ops::instruction_set(ctx_));
      result.threads = ctx_.threads;
      result.memory = physical_memory_bytes();
    }
    result.source = "trireme bench ops --describe";
    result.sources = {{"peak", "the fastest of square products, up to 8192 wide"},
                      {"memory_rate", on_gpu() ? "a copy" : "a triad"},
                      {"vector_peak", "not measured: that of products"}};
    return result;
  }

  // Bytes per second from pinned memory of the host to the GPU.
  double host_rate() {
    const Tensor host = ctx_.allocate_host({16 << 20}, DType::kF32);
    double best = 0.0;
    for (int i = 0; i < 4; ++i) {
      ctx_.stream.synchronize();
      const Stopwatch watch;
      const Tensor copy = ops::to_device(ctx_, host);
      ctx_.stream.synchronize();
      best = std::max(best, static_cast<double>(host.bytes()) / watch.seconds());
    }
    return best;
  }

  void measure_products(const plan::DeviceDescription& device, double until) {
    for (const DType type : options_.types) {
      const double most = kLargestProduct * device.peak.at(type) / 2;
      for (const DescribedProduct& one : described_products(most)) {
        if (!before(until)) break;
        ctx_.times = nullptr;
        run_products(ctx_, one, type);  // a library prepares a product that it has not seen
        ctx_.times = times_;
        run_products(ctx_, one, type);
        ctx_.times = nullptr;
      }
    }
  }

  void measure_steps(int round) {
    bool first = round == 0;
    for (const DescribedStep& one : described_steps()) {
      for (const DType type : options_.types) {
        if (!std::exchange(first, false) && !before(options_.seconds)) return;
        StepBenchOptions step;
        step.model = models::resolve(one.request, {});
        step.batch = step.micro = one.samples;
        step.ranks = {runtime_.rank()};
        Config config;
        config.batch.global = config.batch.micro = one.samples;
        config.run.precision = std::string(name_of(type));
        step.step = step_options(config, step.model.plan, step.grid);
        step.repeats = 2;
        step.warm = [&] { ctx_.times = times_; };
        measure_step(runtime_, ctx_, step);
        ctx_.times = nullptr;
      }
    }
  }

  void add_overlap(plan::DeviceDescription& result) {
    if (runtime_.local_size() != runtime_.size()) {
      report("communication beside computation: not measured, since the ranks are on many nodes");
      return;
    }
    const Overlap overlap = measure_overlap(runtime_.world(), ctx_);
    result.beside_communication = std::clamp(overlap.computation, 0.01, 1.0);
    result.beside_computation = std::clamp(overlap.communication, 0.001, 1.0);
    report(
        fmt::format("at once, computation has {:.2f} and communication {:.2f} of its speed alone",
                    result.beside_communication, result.beside_computation));
  }

  void add_operations(plan::DeviceDescription& result) const {
    double least = 1.0;
    for (const auto& [key, seconds] : times_->calls()) {
      const auto& [name, dtype, sizes, flops, bytes] = key;
      const double mean = times_->stretch() * middle_mean(seconds);
      plan::MeasuredOperation one{name, dtype, sizes, flops, bytes, mean};
      // In tenths of nanoseconds; a clock's tick may be longer than an operation.
      one.seconds = std::max(std::round(one.seconds * 1e10) * 1e-10, 1e-9);
      least = std::min(least, one.seconds);
      const auto peak = result.peak.find(dtype);
      if (name == "attention" && peak != result.peak.end()) {
        double& share = result.constants.attention;
        share = std::clamp(flops / one.seconds / peak->second, share, 1.0);
      }
      result.operations.push_back(std::move(one));
    }
    result.constants.start = std::min(least, 1e-4);
  }

  Runtime& runtime_;
  const DescribeOptions& options_;
  ops::Context ctx_;  // with `times_` while it measures
  Stopwatch watch_;
  std::shared_ptr<ops::OperationTimes> times_;
};

}  // namespace

plan::DeviceDescription describe_device(Runtime& runtime, const ComputeDevice& device,
                                        const DescribeOptions& options) {
  return Describer(runtime, device, options).run();
}

}  // namespace trireme::bench
