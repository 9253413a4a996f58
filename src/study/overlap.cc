#include "overlap.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/ops/elementwise.h"
#include "trireme/study/bench.h"

#include "described_work.h"

namespace trireme::bench {
namespace {

constexpr std::int64_t kBucket = 1 << 20;  // elements: about what trainings reduce at once
constexpr int kBuckets = 32, kProducts = 100, kOverlapRounds = 5;

Work reduce_all(Communicator& comm, ops::Context& ctx, const std::vector<Tensor>& buckets) {
  Work last;
  for (const Tensor& bucket : buckets) last = comm.all_reduce(ctx.stream, bucket, ReduceOp::kSum);
  return last;
}

}  // namespace

Overlap measure_overlap(Communicator& comm, ops::Context& ctx) {
  std::vector<Tensor> buckets;  // no cache holds them all, as when a training reduces gradients
  for (int i = 0; i < kBuckets; ++i) {
    buckets.push_back(ctx.allocate({kBucket}, DType::kF32));
    ops::fill(ctx, buckets.back(), 0.0f);
  }
  const std::vector<Tensor> cached(buckets.size(), buckets.front());
  const auto compute = [&] { run_products(ctx, {64, 512, 512}, DType::kF32); };
  std::vector<double> computation, communication;
  for (int round = 0; round < 1 + kOverlapRounds; ++round) {
    comm.barrier().wait_host();
    Stopwatch watch;
    reduce_all(comm, ctx, cached).wait_host();
    const double communication_alone = watch.seconds();
    watch.restart();
    for (int i = 0; i < kProducts; ++i) compute();
    const double product_alone = watch.seconds() / kProducts;

    comm.barrier().wait_host();
    watch.restart();
    int products = 0;
    for (const Work work = reduce_all(comm, ctx, buckets); !work.done(); ++products) compute();
    const double both = watch.seconds();
    if (round == 0) continue;  // it warms up
    communication.push_back(communication_alone / both);
    computation.push_back(products * product_alone / both);
  }
  return {.computation = median(std::move(computation)),
          .communication = median(std::move(communication))};
}

}  // namespace trireme::bench
