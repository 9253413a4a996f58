#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "ops/convolution_engine.h"
#include "ops/matmul_engine.h"
#include "ops/onednn.h"

namespace trireme::ops {
namespace {

using dnnl::memory;

enum class Pass { kForward, kInput, kWeight };

memory::desc pixels(const Shape& shape, DType dtype) {
  return {
      {shape[0], shape[3], shape[1], shape[2]}, onednn::type_of(dtype), memory::format_tag::nhwc};
}

// Weights as we have them, or in any order that oneDNN likes.
memory::desc weights(const ConvolutionShape& s, DType dtype, bool any) {
  const std::int64_t g = s.groups, out = s.out_channels / g, in = s.group_channels();
  const std::int64_t h = s.kernel_height, w = s.kernel_width;
  const memory::data_type type = onednn::type_of(dtype);
  if (g == 1) {
    const memory::dims dims = {out, in, h, w};
    if (any) return {dims, type, memory::format_tag::any};
    return {dims, type, memory::dims{h * w * in, 1, w * in, in}};
  }
  const memory::dims dims = {g, out, in, h, w};
  if (any) return {dims, type, memory::format_tag::any};
  return {dims, type, memory::dims{out * h * w * in, h * w * in, 1, w * in, in}};
}

// Activations stay in our order, so that nothing is copied between operations. Weights, which are
// small, are brought into oneDNN's order for each call; their gradient comes back and is added.
// oneDNN divides the sums of a weight gradient among threads, so their bits depend on the number of
// threads.
class OneDnnConvolution final : public ConvolutionEngine {
 public:
  OneDnnConvolution() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    description_ = onednn_description();
  }

  const std::string& why_not(const Context& ctx, const ConvolutionKind& kind) override {
    static const std::string none, no_type = "this processor has no instructions for the type";
    static const std::string slow = "oneDNN has only its reference implementation";
    if (kind.dtype == DType::kF16) return no_type;
    if (kind.dtype == DType::kBF16 && !onednn_has_native_bf16()) return no_type;
    const std::lock_guard lock(mutex_);
    for (const Pass pass : {Pass::kForward, Pass::kInput, Pass::kWeight}) {
      if (plan_for(ctx, kind, pass).slow) return slow;
    }
    return none;
  }

  void forward(Context& ctx, const ConvolutionKind& kind, const Tensor& x, const Tensor& weight,
               const Tensor& y) override {
    run(ctx, kind, Pass::kForward, x, y, weight);
  }
  void backward_input(Context& ctx, const ConvolutionKind& kind, const Tensor& dy,
                      const Tensor& weight, const Tensor& dx) override {
    run(ctx, kind, Pass::kInput, dy, dx, weight);
  }
  void backward_weight(Context& ctx, const ConvolutionKind& kind, const Tensor& dy, const Tensor& x,
                       const Tensor& dweight) override {
    run(ctx, kind, Pass::kWeight, x, dy, dweight);
  }

  std::string_view description() const override { return description_; }

 private:
  // What oneDNN has made for a kind, a pass and a number of threads.
  struct Plan {
    dnnl::primitive primitive;
    dnnl::reorder reorder;     // of the weights, to theirs; of their gradient, from theirs, added
    int first, second, third;  // the names of run's tensors
    memory::desc a, b, ours, theirs, scratch;
    bool slow;
  };
  using Key = std::tuple<ConvolutionKind, Pass, int>;

  memory of(const memory::desc& desc, const Tensor& x) const { return {desc, engine_, x.raw()}; }
  static Tensor workspace(Context& ctx, const memory::desc& desc) {
    return ctx.allocate({static_cast<std::int64_t>(desc.get_size())}, DType::kU8,
                        MemoryUse::kWorkspace);
  }

  // `weight` is read, or gets its gradient added.
  void run(Context& ctx, const ConvolutionKind& kind, Pass pass, const Tensor& a, const Tensor& b,
           const Tensor& weight) try {
    const std::lock_guard lock(mutex_);
    const Plan& plan = plan_for(ctx, kind, pass);
    const Tensor theirs = workspace(ctx, plan.theirs);
    const Tensor scratch = workspace(ctx, plan.scratch);
    if (ctx.dry) return;
    onednn::use_threads(ctx.threads);
    memory inside = of(plan.theirs, theirs), outside = of(plan.ours, weight);
    if (pass != Pass::kWeight) plan.reorder.execute(stream_, outside, inside);
    plan.primitive.execute(stream_, {{plan.first, of(plan.a, a)},
                                     {plan.second, of(plan.b, b)},
                                     {plan.third, inside},
                                     {DNNL_ARG_SCRATCHPAD, of(plan.scratch, scratch)}});
    if (pass == Pass::kWeight) plan.reorder.execute(stream_, inside, outside);
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw InternalError(fmt::format("oneDNN could not convolve {} with {}: {}",
                                    kind.shape.input().to_string(), kind.shape.weight().to_string(),
                                    error.what()));
  }

  const Plan& plan_for(const Context& ctx, const ConvolutionKind& kind, Pass pass) {
    const Key key = {kind, pass, ctx.threads};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    onednn::use_threads(ctx.threads);
    return plans_.emplace(key, make_plan(kind, pass)).first->second;
  }

  // The parts of a plan that follow from the primitive's description.
  template <class Primitive, class Description>
  static Plan planned(const Description& described) {
    const bool slow =
        std::string_view(described.impl_info_str()).find("ref") != std::string_view::npos;
    return {Primitive(described), {}, 0, 0, 0, {}, {}, {}, {}, described.scratchpad_desc(), slow};
  }

  Plan make_plan(const ConvolutionKind& kind, Pass pass) const {
    const ConvolutionShape& s = kind.shape;
    const memory::desc x = pixels(s.input(), kind.dtype), y = pixels(s.output(), kind.dtype);
    const memory::desc w = weights(s, kind.dtype, true), dw = weights(s, DType::kF32, true);
    const memory::dims strides = {s.stride, s.stride}, padding = {s.padding, s.padding};
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    dnnl::primitive_attr attributes, adding;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto forward = onednn::describe<dnnl::convolution_forward>(
        engine_, attributes, dnnl::prop_kind::forward_training, kDirect, x, w, y, strides, padding,
        padding);
    Plan plan;
    if (pass == Pass::kForward) {
      plan = planned<dnnl::convolution_forward>(forward);
      plan.first = DNNL_ARG_SRC, plan.second = DNNL_ARG_DST, plan.third = DNNL_ARG_WEIGHTS;
      plan.a = x, plan.b = y, plan.theirs = forward.weights_desc();
    } else if (pass == Pass::kInput) {
      const auto backward = onednn::describe<dnnl::convolution_backward_data>(
          engine_, attributes, std::tie(forward), kDirect, x, w, y, strides, padding, padding);
      plan = planned<dnnl::convolution_backward_data>(backward);
      plan.first = DNNL_ARG_DIFF_DST, plan.second = DNNL_ARG_DIFF_SRC;
      plan.third = DNNL_ARG_WEIGHTS;
      plan.a = y, plan.b = x, plan.theirs = backward.weights_desc();
    } else {
      const auto backward = onednn::describe<dnnl::convolution_backward_weights>(
          engine_, attributes, std::tie(forward), kDirect, x, dw, y, strides, padding, padding);
      plan = planned<dnnl::convolution_backward_weights>(backward);
      plan.first = DNNL_ARG_SRC, plan.second = DNNL_ARG_DIFF_DST;
      plan.third = DNNL_ARG_DIFF_WEIGHTS;
      plan.a = x, plan.b = y, plan.theirs = backward.diff_weights_desc();
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      adding.set_post_ops(sum);
    }
    const bool back = pass == Pass::kWeight;
    plan.ours = weights(s, back ? DType::kF32 : kind.dtype, false);
    plan.reorder = dnnl::reorder(dnnl::reorder::primitive_desc(
        engine_, back ? plan.theirs : plan.ours, engine_, back ? plan.ours : plan.theirs, adding));
    return plan;
  }

  std::mutex mutex_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Plan> plans_;
  std::string description_;
};

}  // namespace

std::unique_ptr<ConvolutionEngine> make_onednn_convolution() {
  return std::make_unique<OneDnnConvolution>();
}

}  // namespace trireme::ops
