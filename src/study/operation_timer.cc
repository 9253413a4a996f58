#include "study/operation_timer.h"

#include <algorithm>
#include <optional>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/tensor/captured_work.h"

namespace trireme::bench {
namespace {

constexpr int kInGraph = 16;

// So many runs as one piece of a GPU's work.
class Replayed {
 public:
  Replayed(ops::Context& ctx, const std::function<void()>& run)
      : ctx_(ctx), work_(ctx.cuda, ctx.stream, ctx.allocator) {
    const auto all = [&run] {
      for (int i = 0; i < kInGraph; ++i) run();
    };
    work_.rehearse(all);
    work_.capture(all);
    work_.replay();  // a graph's first launch takes longer
  }

  double seconds() {
    return ops::seconds_of(ctx_, [this] { work_.replay(); }) / kInGraph;
  }

 private:
  ops::Context& ctx_;
  cuda::CapturedWork work_;
};

}  // namespace

OperationTimer::OperationTimer(ops::Context& ctx, How how) : ctx_(ctx), how_(how) {
  if (!ctx.cuda) how_ = {};
  if (!how_.cold) return;
  constexpr std::size_t kFewest = 4;  // of a GPU that tells no cache
  const std::size_t cache = ctx.cuda->properties(ctx.device.index).l2;
  evicts_ = ctx.allocate({static_cast<std::int64_t>(2 * std::max(cache, kFewest) / sizeof(float))},
                         DType::kF32, MemoryUse::kWorkspace);
}

void OperationTimer::evict() {
  if (how_.cold) ops::fill(ctx_, evicts_, 0.0f);
}

double OperationTimer::once(const std::function<void()>& body) {
  evict();
  return ops::seconds_of(ctx_, body);
}

std::vector<double> OperationTimer::repeats(const std::function<void()>& body, int count) {
  if (how_.graph) return in_graph(body, count);
  body();
  ctx_.stream.synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) seconds.push_back(once(body));
  return seconds;
}

std::vector<double> OperationTimer::in_graph(const std::function<void()>& body, int count) {
  Replayed runs(ctx_, [&] {
    evict();
    body();
  });
  std::optional<Replayed> evictions;
  if (how_.cold) evictions.emplace(ctx_, [&] { evict(); });
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const double both = runs.seconds();
    seconds.push_back(evictions ? std::max(0.0, both - evictions->seconds()) : both);
  }
  return seconds;
}

}  // namespace trireme::bench
