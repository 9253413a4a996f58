// What the operations of a dry context would have done, and how long those of another one take.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/tensor/dtype.h"

namespace trireme::ops {

struct OperationCount {
  std::int64_t calls = 0;
  // Floating-point operations of matrix products, convolutions and attention, exactly; others count
  // none, since the memory bounds their time. Attention counts the pairs of positions that causal
  // masks leave, and convolutions count the zeros of the padding.
  double flops = 0.0;
  double bytes = 0.0;  // of the tensors that the calls read or wrote, each once in a call
};

class OperationCounts {
 public:
  void add(std::string_view operation, const OperationCount& more);

  // The counts by the name of the operation. All products are "matmul".
  const std::map<std::string, OperationCount, std::less<>>& by_operation() const { return counts_; }
  OperationCount total() const;

 private:
  std::map<std::string, OperationCount, std::less<>> counts_;
};

struct Context;

// Returns how long `body` takes: on a GPU what it queues there, without what the host takes to
// queue it and to wait for it.
double seconds_of(const Context& ctx, const std::function<void()>& body);

// One call of an operation on a dry context.
struct OperationCall {
  std::string_view name;
  DType dtype = DType::kF32;            // of the first tensor
  std::array<std::int64_t, 4> sizes{};  // as ProgramEntry::sizes
  double flops = 0.0, bytes = 0.0;      // as in OperationCount
};

// Counts a call in Context::dry, and tells Context::log, if there is one, of it.
void count_call(const Context& ctx, const OperationCall& call);

// How long the calls of a context take whose Context::times it is. Each call is waited for, unless
// calls are marked.
class OperationTimes {
 public:
  // What OperationCall has.
  using Key = std::tuple<std::string, DType, std::array<std::int64_t, 4>, double, double>;
  // kThread counts what the calling thread of a CPU computes. Where several threads share a
  // processor, a call takes that or, now and then, some milliseconds more, which no median shows.
  enum class Clock { kWall, kThread };

  explicit OperationTimes(Clock clock = Clock::kWall) : clock_(clock) {}
  // Calls are neither timed nor waited for: `mark` is told the number of each before it, from 1 on,
  // and 0 behind it.
  using Mark = std::function<void(std::uint64_t number)>;
  explicit OperationTimes(Mark mark) : mark_(std::move(mark)) {}

  // Runs a call and times it. What it calls in turn counts for itself alone.
  void run(const Context& ctx, const OperationCall& call, const std::function<void()>& body);

  // The seconds of each time that a call was made.
  const std::map<Key, std::vector<double>>& calls() const { return calls_; }
  // The calls that were marked: number 1 is the first of these.
  const std::vector<Key>& marked() const { return marked_; }
  // How many times as long all calls took together; 1 by the wall's clock, and without calls.
  double stretch() const;

 private:
  Clock clock_ = Clock::kWall;
  Mark mark_;
  std::vector<Key> marked_;
  std::map<Key, std::vector<double>> calls_;
  double counted_ = 0.0, elapsed_ = 0.0;  // seconds of all calls, by clock_ and by the wall's
  double inner_ = 0.0;                    // seconds of calls that the one which runs has made
  int depth_ = 0;                         // of calls within calls
};

// Makes a call on a context that counts calls or times them: counts it first, or times it.
void count_or_time(const Context& ctx, const OperationCall& call,
                   const std::function<void()>& body);

// Makes a dry context (context.h) of no device in particular, on which what a model costs is the
// same on every machine and in every build. A product is one operation with its bias, and so is a
// convolution; nothing else is fused. There is memory for the longest slices of a loss
// (nn::loss_slice_rows).
Context make_counting_context();

}  // namespace trireme::ops
