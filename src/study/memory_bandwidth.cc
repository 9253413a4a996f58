#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/study/scaling_study.h"

namespace trireme::scaling {
namespace {

constexpr std::size_t kElements = std::size_t{8} << 20;  // of each of three arrays: past any cache
constexpr int kRounds = 6;

// Each thread works on a part of its own, which it has touched first: its pages lie near its core.
template <class Function>
void on_parts(int threads, const Function& function) {
  std::vector<std::jthread> others;
  const auto part = [&](int i) {
    const auto n = static_cast<std::size_t>(threads), t = static_cast<std::size_t>(i);
    function(kElements * t / n, kElements * (t + 1) / n);
  };
  for (int i = 1; i < threads; ++i) others.emplace_back(part, i);
  part(0);
}

}  // namespace

double measure_memory_bandwidth(Communicator& comm, int threads) {
  const auto make = [] { return std::make_unique_for_overwrite<double[]>(kElements); };
  const auto a = make(), b = make(), c = make();
  on_parts(threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      a[i] = 0.0;
      b[i] = 1.0;
      c[i] = static_cast<double>(i);
    }
  });
  double least = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    comm.barrier().wait_host();
    const Stopwatch watch;
    const double factor = 0.5 * round;
    on_parts(threads, [&](std::size_t begin, std::size_t end) {
      double* const to = a.get();
      const double *const x = b.get(), *const y = c.get();
      for (std::size_t i = begin; i < end; ++i) to[i] = x[i] + factor * y[i];
    });
    const double slowest = comm.all_reduce_host(watch.seconds(), ReduceOp::kMax);
    if (round == 0 || slowest < least) least = slowest;
  }
  return 3.0 * sizeof(double) * kElements * comm.size() / least;
}

}  // namespace trireme::scaling
