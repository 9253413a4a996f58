// Convolutions with cuDNN's graph interface.
#include <map>
#include <string>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"

#include "ops/convolution_engine.h"
#include "ops/cudnn.h"

namespace trireme::ops {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;

// A faster engine is not worth more memory than that: the dry run of a GPU, which has no engine,
// does not count it.
constexpr std::int64_t kMostWorkspace = std::int64_t{256} << 20;  // bytes

// The ids of a graph's tensors. A gradient has that of its tensor.
enum Operand : std::int64_t { kInput = 1, kWeight, kOutput, kWeightBefore };

// cuDNN names extents in the order N, C, H, W; the strides say that channels are last.
fe::graph::Tensor_attributes pixels(Operand operand, const Shape& s) {
  fe::graph::Tensor_attributes result;
  result.set_uid(operand)
      .set_dim({s[0], s[3], s[1], s[2]})
      .set_stride({s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]});
  return result;
}

void output(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor,
            const fe::graph::Tensor_attributes& like) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride());
}

template <class Attributes>
Attributes windows(const char* name, const ConvolutionShape& shape) {
  Attributes attributes;
  attributes.set_name(name);
  attributes.set_padding({shape.padding, shape.padding})
      .set_stride({shape.stride, shape.stride})
      .set_dilation({1, 1});
  return attributes;
}

void describe_forward(Graph& graph, const ConvolutionShape& shape) {
  const auto y = graph.conv_fprop(graph.tensor(pixels(kInput, shape.input())),
                                  graph.tensor(pixels(kWeight, shape.weight())),
                                  windows<fe::graph::Conv_fprop_attributes>("convolution", shape));
  output(y, pixels(kOutput, shape.output()));
}

void describe_backward_input(Graph& graph, const ConvolutionShape& shape) {
  const auto dx = graph.conv_dgrad(
      graph.tensor(pixels(kOutput, shape.output())), graph.tensor(pixels(kWeight, shape.weight())),
      windows<fe::graph::Conv_dgrad_attributes>("convolution_backward_input", shape));
  output(dx, pixels(kInput, shape.input()));
}

// The sums of 16-bit products leave tensor cores in fp32, and only a following operation may write
// them so: the addition to the gradient that is there. In fp32 cuDNN has no such pair, so the
// gradient is a tensor of its own.
void describe_backward_weight(Graph& graph, const ConvolutionShape& shape, bool adds) {
  const auto product = graph.conv_wgrad(
      graph.tensor(pixels(kOutput, shape.output())), graph.tensor(pixels(kInput, shape.input())),
      windows<fe::graph::Conv_wgrad_attributes>("convolution_backward_weight", shape));
  const fe::graph::Tensor_attributes like = pixels(kWeight, shape.weight());
  if (!adds) return output(product, like);
  product->set_dim(like.get_dim()).set_stride(like.get_stride());
  fe::graph::Tensor_attributes before = pixels(kWeightBefore, shape.weight());
  before.set_data_type(fe::DataType_t::FLOAT);
  const auto sum = graph.pointwise(product, graph.tensor(before),
                                   fe::graph::Pointwise_attributes()
                                       .set_mode(fe::PointwiseMode_t::ADD)
                                       .set_compute_data_type(fe::DataType_t::FLOAT));
  output(sum, like);
  sum->set_data_type(fe::DataType_t::FLOAT);
}

class CudnnConvolution final : public ConvolutionEngine {
 public:
  template <class... Description>
  CudnnConvolution(const cuda::DeviceProperties& device, bool tf32,
                   const Description&... description)
      : device_(device, description...), tf32_(tf32) {}

  const std::string& why_not(const Context&, const ConvolutionKind& kind) override {
    return plans_for(kind).why_not;
  }

  void forward(Context& ctx, const ConvolutionKind& kind, const Tensor& x, const Tensor& weight,
               const Tensor& y) override {
    execute(ctx, "convolution", plans_for(kind).forward, x, weight, y);
  }
  void backward_input(Context& ctx, const ConvolutionKind& kind, const Tensor& dy,
                      const Tensor& weight, const Tensor& dx) override {
    execute(ctx, "convolution_backward_input", plans_for(kind).backward_input, dx, weight, dy);
  }
  void backward_weight(Context& ctx, const ConvolutionKind& kind, const Tensor& dy, const Tensor& x,
                       const Tensor& dweight) override {
    if (adds(kind)) {
      return execute(ctx, "convolution_backward_weight", plans_for(kind).backward_weight, x,
                     dweight, dy, dweight);
    }
    const Tensor mine = ctx.allocate(dweight.shape(), DType::kF32, MemoryUse::kWorkspace);
    execute(ctx, "convolution_backward_weight", plans_for(kind).backward_weight, x, mine, dy);
    add(ctx, dweight, mine, dweight);
  }

  std::string_view description() const override { return device_.description(); }

 private:
  static bool adds(const ConvolutionKind& kind) { return kind.dtype != DType::kF32; }

  struct Plans {
    std::string why_not;
    cudnn::Plan forward, backward_input, backward_weight;
  };

  Plans& plans_for(const ConvolutionKind& kind) {
    const auto [found, is_new] = plans_.try_emplace(kind);
    if (is_new) found->second.why_not = compile(kind, found->second);
    return found->second;
  }

  std::string compile(const ConvolutionKind& kind, Plans& plans) {
    if (kind.shape.pointwise()) return "a matrix product";
    cudnn::Compilation how = {
        .io = kind.dtype,
        .engines = {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK},
        .without = {fe::NumericalNote_t::NONDETERMINISTIC, fe::NumericalNote_t::DOWN_CONVERT_INPUTS,
                    fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION},
        .most_workspace = kMostWorkspace};
    // In fp32 tensor cores compute in TF32.
    if (kind.dtype == DType::kF32 && !tf32_) {
      how.without.push_back(fe::NumericalNote_t::TENSOR_CORE);
    }
    const auto refusal = [&](std::string_view pass, cudnn::Plan& plan, auto describe) {
      try {
        device_.compile(plan, how, [&](Graph& graph) { describe(graph); });
        return std::string();
      } catch (const std::exception& refused) {  // its function lookups throw, too
        return fmt::format("{}: {}", pass, refused.what());
      }
    };
    std::string why_not = refusal("forward", plans.forward,
                                  [&](Graph& graph) { describe_forward(graph, kind.shape); });
    if (why_not.empty()) {
      why_not = refusal("gradient of the input", plans.backward_input,
                        [&](Graph& graph) { describe_backward_input(graph, kind.shape); });
    }
    if (why_not.empty()) {
      why_not = refusal("gradient of the weights", plans.backward_weight, [&](Graph& graph) {
        describe_backward_weight(graph, kind.shape, adds(kind));
      });
    }
    return why_not;
  }

  void execute(Context& ctx, const char* what, cudnn::Plan& plan, const Tensor& input,
               const Tensor& weight, const Tensor& output, const Tensor& weight_before = {}) {
    cudnn::Device::Pointers pointers = {
        {kInput, input.raw()}, {kWeight, weight.raw()}, {kOutput, output.raw()}};
    if (weight_before.defined()) pointers[kWeightBefore] = weight_before.raw();
    device_.execute(ctx, what, plan, pointers);
  }

  cudnn::Device device_;
  bool tf32_;
  std::map<ConvolutionKind, Plans> plans_;
};

}  // namespace

std::shared_ptr<ConvolutionEngine> make_cudnn_convolution(const cuda::DeviceProperties& device,
                                                          bool tf32) {
  if (!cudnn::Device::why_not().empty()) return nullptr;
  return std::make_shared<CudnnConvolution>(device, tf32);
}

std::shared_ptr<ConvolutionEngine> make_cudnn_convolution_for(const cuda::DeviceProperties& device,
                                                              const std::string& json, bool tf32) {
  return std::make_shared<CudnnConvolution>(device, tf32, json);
}

}  // namespace trireme::ops
