#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/thread.h"
#include "trireme/study/scaling_study.h"
#include "trireme/tensor/copy.h"

namespace trireme::scaling {
namespace {

constexpr std::size_t kElements = std::size_t{8} << 20;    // of each of 3 arrays; beyond any cache
constexpr std::int64_t kCopied = std::int64_t{256} << 20;  // bytes, of a GPU
constexpr int kRounds = 5;

// Each thread works on its own part. It touches that part first, so the pages lie near its core.
template <class Function>
void on_parts(int threads, const Function& function) {
  std::vector<std::jthread> others;
  const auto part = [&](int i) {
    const auto n = static_cast<std::size_t>(threads), t = static_cast<std::size_t>(i);
    function(kElements * t / n, kElements * (t + 1) / n);
  };
  for (int i = 1; i < threads; ++i) {
    others.push_back(start_thread("measuring memory", [&part, i] { part(i); }));
  }
  part(0);
}

// Collective over comm. Returns the bytes/s of all ranks together, where each rank reads and writes
// `bytes` in a round. The first round is a warm-up.
double best_rate(Communicator& comm, double bytes, const std::function<void()>& round) {
  round();
  double least = 0.0;
  for (int i = 0; i < kRounds; ++i) {
    comm.barrier().wait_host();
    const Stopwatch watch;
    round();
    const double slowest = comm.all_reduce_host(watch.seconds(), ReduceOp::kMax);
    if (i == 0 || slowest < least) least = slowest;
  }
  return bytes * comm.size() / least;
}

double rate_of_triad(Communicator& comm, int threads) {
  const auto make = [] { return std::make_unique_for_overwrite<double[]>(kElements); };
  const auto a = make(), b = make(), c = make();
  on_parts(threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      a[i] = 0.0;
      b[i] = 1.0;
      c[i] = static_cast<double>(i);
    }
  });
  double factor = 0.0;
  return best_rate(comm, 3.0 * sizeof(double) * kElements, [&] {
    factor += 0.5;
    on_parts(threads, [&](std::size_t begin, std::size_t end) {
      double* const to = a.get();
      const double *const x = b.get(), *const y = c.get();
      for (std::size_t i = begin; i < end; ++i) to[i] = x[i] + factor * y[i];
    });
  });
}

// Copies in memory that is returned to the device at the end.
double rate_of_copy(Communicator& comm, const ops::Context& ctx) {
  const auto memory = cuda::make_device_allocator(ctx.cuda, ctx.device.index);
  const auto make = [&] {
    return Tensor::allocate(*memory, ctx.stream, {kCopied}, DType::kU8, MemoryUse::kWorkspace);
  };
  const Tensor from = make(), to = make();
  return best_rate(comm, 2.0 * kCopied, [&] {
    copy(from, to, ctx.stream);
    ctx.stream.synchronize();
  });
}

}  // namespace

double measure_memory_bandwidth(Communicator& comm, const ops::Context& ctx) {
  return ctx.cuda ? rate_of_copy(comm, ctx) : rate_of_triad(comm, ctx.threads);
}

}  // namespace trireme::scaling
