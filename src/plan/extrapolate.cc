#include "plan/extrapolate.h"

#include <limits>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

// Adds `times` times what `more` has beyond `fewer`.
class Extrapolation {
 public:
  explicit Extrapolation(std::int64_t times) : times_(times) {}

  // Throws OutOfMemoryError where the result is above 8 EiB.
  template <class Number>
  void operator()(Number& more, const Number& fewer) const {
    const double result =
        static_cast<double>(more) +
        static_cast<double>(times_) * (static_cast<double>(more) - static_cast<double>(fewer));
    if (result > static_cast<double>(std::numeric_limits<std::int64_t>::max())) {
      throw OutOfMemoryError("a rank would need more than 8 EiB");
    }
    if (result < 0.0) {  // of a use that is smaller at a later peak
      more = 0;
      return;
    }
    more += static_cast<Number>(times_) * (more - fewer);  // unsigned numbers wrap and come back
  }
  void operator()(MemoryStats& more, const MemoryStats& fewer) const {
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
      (*this)(more.live[use], fewer.live[use]);
      (*this)(more.peak[use], fewer.peak[use]);
      (*this)(more.at_peak[use], fewer.at_peak[use]);
    }
    (*this)(more.total_live, fewer.total_live);
    (*this)(more.total_peak, fewer.total_peak);
    (*this)(more.reserved, fewer.reserved);
  }

 private:
  std::int64_t times_;
};

}  // namespace

void extrapolate(DryRunResult& more, const DryRunResult& fewer, std::int64_t periods) {
  const Extrapolation by(periods);
  by(more.memory, fewer.memory);
  TRIREME_CHECK(more.traffic.size() == fewer.traffic.size(),
                "what a rank sends depends on the number of micro-batches");
  for (std::size_t i = 0; i < more.traffic.size(); ++i) {
    by(more.traffic[i].calls, fewer.traffic[i].calls);
    by(more.traffic[i].bytes, fewer.traffic[i].bytes);
  }
  ops::OperationCounts counts = more.operations;
  for (const auto& [name, count] : more.operations.by_operation()) {
    const auto found = fewer.operations.by_operation().find(name);
    const bool known = found != fewer.operations.by_operation().end();
    const ops::OperationCount before = known ? found->second : ops::OperationCount{};
    const auto times = static_cast<double>(periods);
    counts.add(name, {periods * (count.calls - before.calls), times * (count.flops - before.flops),
                      times * (count.bytes - before.bytes)});
  }
  more.operations = std::move(counts);
}

}  // namespace trireme::plan
