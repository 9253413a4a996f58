// Attention with cuDNN's graph interface.
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "ops/attention_engine.h"
#include "ops/attention_operands.h"
#include "ops/cudnn.h"

namespace trireme::ops {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorRef = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::graph::Tensor_attributes attributes(AttentionOperand operand, const AttentionShape& shape) {
  const OperandLayout layout = layout_of(operand, shape);
  fe::graph::Tensor_attributes result;
  result.set_uid(static_cast<std::int64_t>(operand))
      .set_dim({layout.extent.begin(), layout.extent.end()})
      .set_stride({layout.stride.begin(), layout.stride.end()});
  if (operand == AttentionOperand::kLogSum) result.set_data_type(fe::DataType_t::FLOAT);
  return result;
}

TensorRef input(Graph& graph, AttentionOperand operand, const AttentionShape& shape) {
  return graph.tensor(attributes(operand, shape));
}

void output(const TensorRef& tensor, AttentionOperand operand, const AttentionShape& shape) {
  const OperandLayout layout = layout_of(operand, shape);
  tensor->set_output(true)
      .set_uid(static_cast<std::int64_t>(operand))
      .set_dim({layout.extent.begin(), layout.extent.end()})
      .set_stride({layout.stride.begin(), layout.stride.end()});
  if (operand == AttentionOperand::kLogSum) tensor->set_data_type(fe::DataType_t::FLOAT);
}

// What forward and backward have in common: the scale of scores, and the causal mask.
template <class Attributes>
Attributes& masked(Attributes& attributes, const AttentionShape& shape) {
  attributes.set_attn_scale(shape.factor());
  if (!shape.causal) return attributes;
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  attributes.set_diagonal_band_right_bound(0);
  // Its bound is the number of keys to the left of the diagonal, plus one.
  if (shape.reads_windows())
    attributes.set_diagonal_band_left_bound(static_cast<int>(shape.window));
  return attributes;
}

void describe_forward(Graph& graph, const AttentionShape& shape) {
  fe::graph::SDPA_attributes how;
  how.set_name("attention").set_generate_stats(true);
  const auto [out, log_sum] = graph.sdpa(
      input(graph, AttentionOperand::kQuery, shape), input(graph, AttentionOperand::kKey, shape),
      input(graph, AttentionOperand::kValue, shape), masked(how, shape));
  output(out, AttentionOperand::kOut, shape);
  output(log_sum, AttentionOperand::kLogSum, shape);
}

void describe_backward(Graph& graph, const AttentionShape& shape, bool any_order) {
  fe::graph::SDPA_backward_attributes how;
  how.set_name("attention_backward").set_deterministic_algorithm(!any_order);
  const auto [dquery, dkey, dvalue] = graph.sdpa_backward(
      input(graph, AttentionOperand::kQuery, shape), input(graph, AttentionOperand::kKey, shape),
      input(graph, AttentionOperand::kValue, shape), input(graph, AttentionOperand::kOut, shape),
      input(graph, AttentionOperand::kOutGradient, shape),
      input(graph, AttentionOperand::kLogSum, shape), masked(how, shape));
  output(dquery, AttentionOperand::kQueryGradient, shape);
  output(dkey, AttentionOperand::kKeyGradient, shape);
  output(dvalue, AttentionOperand::kValueGradient, shape);
}

class CudnnAttention : public AttentionEngine {
 public:
  template <class... Description>
  explicit CudnnAttention(const cuda::DeviceProperties& device, const Description&... description)
      : device_(device, description...) {}

  const std::string& why_not(const AttentionKind& kind) override { return plans_for(kind).why_not; }

  void forward(Context& ctx, const AttentionKind& kind, const Tensor& qkv, const Tensor& out,
               const Tensor& log_sum) override {
    Pointers pointers;
    bind_heads(pointers, kind, qkv);
    bind(pointers, kind, AttentionOperand::kOut, out);
    bind(pointers, kind, AttentionOperand::kLogSum, log_sum);
    device_.execute(ctx, "attention", plans_for(kind).forward, pointers);
  }

  void backward(Context& ctx, const AttentionKind& kind, const Tensor& qkv, const Tensor& out,
                const Tensor& log_sum, const Tensor& dout, const Tensor& dqkv) override {
    Pointers pointers;
    bind_heads(pointers, kind, qkv);
    bind(pointers, kind, AttentionOperand::kOut, out);
    bind(pointers, kind, AttentionOperand::kLogSum, log_sum);
    bind(pointers, kind, AttentionOperand::kOutGradient, dout);
    bind(pointers, kind, AttentionOperand::kQueryGradient, dqkv);
    bind(pointers, kind, AttentionOperand::kKeyGradient, dqkv);
    bind(pointers, kind, AttentionOperand::kValueGradient, dqkv);
    device_.execute(ctx, "attention_backward", plans_for(kind).backward, pointers);
  }

  std::string_view description() const override { return device_.description(); }

 private:
  using Pointers = cudnn::Device::Pointers;  // by AttentionOperand
  struct Plans {
    std::string why_not;
    cudnn::Plan forward, backward;
  };

  Plans& plans_for(const AttentionKind& kind) {
    const auto [found, is_new] = plans_.try_emplace(kind);
    if (is_new) found->second.why_not = compile(kind, found->second);
    return found->second;
  }

  std::string compile(const AttentionKind& kind, Plans& plans) {
    if (kind.masks_documents) return "documents are masked";
    if (kind.masks_ends) return "padding is masked";
    if (kind.shape.cap > 0.0f) return "scores are capped";
    if (kind.dtype == DType::kF32) return "not in fp32";
    try {
      device_.compile(plans.forward, {.io = kind.dtype},
                      [&](Graph& graph) { describe_forward(graph, kind.shape); });
      device_.compile(plans.backward, {.io = kind.dtype},
                      [&](Graph& graph) { describe_backward(graph, kind.shape, kind.any_order); });
    } catch (const std::exception& refusal) {  // its function lookups throw, too
      return refusal.what();
    }
    return "";
  }

  static void bind(Pointers& pointers, const AttentionKind& kind, AttentionOperand operand,
                   const Tensor& tensor) {
    const std::int64_t bytes =
        layout_of(operand, kind.shape).offset * static_cast<std::int64_t>(size_of(tensor.dtype()));
    pointers[static_cast<std::int64_t>(operand)] = static_cast<std::byte*>(tensor.raw()) + bytes;
  }
  static void bind_heads(Pointers& pointers, const AttentionKind& kind, const Tensor& qkv) {
    bind(pointers, kind, AttentionOperand::kQuery, qkv);
    bind(pointers, kind, AttentionOperand::kKey, qkv);
    bind(pointers, kind, AttentionOperand::kValue, qkv);
  }

  cudnn::Device device_;
  std::map<AttentionKind, Plans> plans_;
};

}  // namespace

std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties& device) {
  const std::string why_not = cudnn::Device::why_not();
  if (!why_not.empty()) return make_absent_attention("cuDNN", why_not);
  return std::make_shared<CudnnAttention>(device);
}

std::shared_ptr<AttentionEngine> make_cudnn_attention_for(const cuda::DeviceProperties& device,
                                                          const std::string& json) {
  return std::make_shared<CudnnAttention>(device, json);
}

}  // namespace trireme::ops
