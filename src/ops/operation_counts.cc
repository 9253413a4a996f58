#include "trireme/ops/operation_counts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/ops/context.h"

#include "ops/convolution_engine.h"
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

void add_to(OperationCount& sum, const OperationCount& more) {
  sum.calls += more.calls;
  sum.flops += more.flops;
  sum.bytes += more.bytes;
}

class CountedMatmul final : public MatmulEngine {
 public:
  void run(Context&, const MatmulCall&) override {}
  bool fuses(const MatmulCall& call) override {
    return call.epilogue == Epilogue::kNone && call.addend == nullptr;
  }
  std::string_view description(DType) const override { return "none: products are counted"; }
};

class CountedConvolution final : public ConvolutionEngine {
 public:
  const std::string& why_not(const Context&, const ConvolutionKind&) override { return why_not_; }
  void forward(Context&, const ConvolutionKind&, const Tensor&, const Tensor&,
               const Tensor&) override {}
  void backward_input(Context&, const ConvolutionKind&, const Tensor&, const Tensor&,
                      const Tensor&) override {}
  void backward_weight(Context&, const ConvolutionKind&, const Tensor&, const Tensor&,
                       const Tensor&) override {}
  std::string_view description() const override { return "none: convolutions are counted"; }

 private:
  const std::string why_not_;  // nothing is
};

}  // namespace

double seconds_of(const Context& ctx, const std::function<void()>& body) {
  if (!ctx.cuda) {
    const Stopwatch watch;
    body();
    return watch.seconds();
  }
  cuda::Event begin(ctx.cuda, ctx.device.index, true), end(ctx.cuda, ctx.device.index, true);
  begin.record(ctx.stream);
  body();
  end.record(ctx.stream);
  end.synchronize();
  return end.seconds_since(begin);
}

void OperationCounts::add(std::string_view operation, const OperationCount& more) {
  auto found = counts_.find(operation);
  if (found == counts_.end()) found = counts_.try_emplace(std::string(operation)).first;
  add_to(found->second, more);
}

void count_call(const Context& ctx, const OperationCall& call) {
  ctx.dry->add(call.name, {1, call.flops, call.bytes});
  if (!ctx.log) return;
  const void* stream = ctx.device.kind == DeviceKind::kCpu ? nullptr : ctx.stream.native();
  ctx.log->compute(stream, call.name, call.dtype, call.sizes, call.flops, call.bytes);
}

void OperationTimes::run(const Context& ctx, const OperationCall& call,
                         const std::function<void()>& body) {
  Key key{std::string(call.name), call.dtype, call.sizes, call.flops, call.bytes};
  if (mark_) {
    marked_.push_back(std::move(key));
    mark_(marked_.size());
    body();
    return mark_(0);
  }
  const double before = std::exchange(inner_, 0.0);
  ++depth_;
  const double begun = clock_ == Clock::kThread ? thread_seconds() : 0.0;
  const double elapsed = seconds_of(ctx, body);
  const double seconds = clock_ == Clock::kThread ? thread_seconds() - begun : elapsed;
  const double own = std::max(0.0, seconds - inner_);
  inner_ = before + seconds;
  if (--depth_ == 0) {
    counted_ += seconds;
    elapsed_ += elapsed;
  }
  calls_[std::move(key)].push_back(own);
}

void count_or_time(const Context& ctx, const OperationCall& call,
                   const std::function<void()>& body) {
  if (ctx.times) return ctx.times->run(ctx, call, body);
  count_call(ctx, call);
  body();
}

double OperationTimes::stretch() const {
  return clock_ == Clock::kThread && counted_ > 0.0 ? elapsed_ / counted_ : 1.0;
}

OperationCount OperationCounts::total() const {
  OperationCount sum;
  for (const auto& [name, count] : counts_) add_to(sum, count);
  return sum;
}

Context make_counting_context() {
  Context ctx;
  ctx.stream = dry_stream();
  ctx.allocator = make_dry_allocator();
  ctx.host_allocator = ctx.allocator;
  ctx.matmul = std::make_shared<CountedMatmul>();
  ctx.convolution = std::make_shared<CountedConvolution>();
  ctx.step_state = std::make_shared<StepState>();
  ctx.dry = std::make_shared<OperationCounts>();
  ctx.gpu_memory = std::numeric_limits<std::int64_t>::max();
  return ctx;
}

}  // namespace trireme::ops
