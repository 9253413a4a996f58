// Attention with cuDNN's graph interface. NVIDIA's header-only frontend describes the graphs. It
// finds cuDNN's functions in the library that this file opens.
#include <cmath>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

// Options of the frontend: look functions up at run time, and include no JSON parser.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"

#include "ops/attention_engine.h"
#include "ops/attention_operands.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend's own name for the library, as dlopen gave it
}

namespace trireme::ops {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorRef = std::shared_ptr<fe::graph::Tensor_attributes>;

// An error of the library: the first line of its message, without the log's prefixes.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void check(fe::error_t result) {
  if (result.is_good()) return;
  const std::string message = result.get_message();
  throw Refusal(message.substr(0, message.find('\n')));
}

fe::DataType_t type_of(DType dtype) {
  if (dtype == DType::kBF16) return fe::DataType_t::BFLOAT16;
  if (dtype == DType::kF16) return fe::DataType_t::HALF;
  throw Refusal(fmt::format("not in {}", name_of(dtype)));
}

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

// What forward and backward have in common: scores over sqrt(head_size), and the causal mask.
template <class Attributes>
Attributes& masked(Attributes& attributes, const AttentionShape& shape) {
  attributes.set_attn_scale(1.0f / std::sqrt(static_cast<float>(shape.head_size)));
  if (!shape.causal) return attributes;
  attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  attributes.set_diagonal_band_right_bound(0);
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

void describe_backward(Graph& graph, const AttentionShape& shape) {
  fe::graph::SDPA_backward_attributes how;
  how.set_name("attention_backward").set_deterministic_algorithm(true);
  const auto [dquery, dkey, dvalue] = graph.sdpa_backward(
      input(graph, AttentionOperand::kQuery, shape), input(graph, AttentionOperand::kKey, shape),
      input(graph, AttentionOperand::kValue, shape), input(graph, AttentionOperand::kOut, shape),
      input(graph, AttentionOperand::kOutGradient, shape),
      input(graph, AttentionOperand::kLogSum, shape), masked(how, shape));
  output(dquery, AttentionOperand::kQueryGradient, shape);
  output(dkey, AttentionOperand::kKeyGradient, shape);
  output(dvalue, AttentionOperand::kValueGradient, shape);
}

// A cuDNN handle on the calling thread's device.
class Handle {
 public:
  explicit Handle(const DynamicLibrary& library)
      : destroy_(library.required<cudnnStatus_t(cudnnHandle_t)>("cudnnDestroy")),
        set_stream_(library.required<cudnnStatus_t(cudnnHandle_t, cudaStream_t)>("cudnnSetStream")),
        error_string_(library.required<const char*(cudnnStatus_t)>("cudnnGetErrorString")) {
    say("cudnnCreate", library.required<cudnnStatus_t(cudnnHandle_t*)>("cudnnCreate")(&handle_));
  }
  ~Handle() { destroy_(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t on(const Stream& stream) {
    say("cudnnSetStream", set_stream_(handle_, static_cast<cudaStream_t>(stream.native())));
    return handle_;
  }

 private:
  void say(const char* call, cudnnStatus_t status) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw CudaError(fmt::format("{}: {}", call, error_string_(status)));
  }

  cudnnStatus_t (*destroy_)(cudnnHandle_t);
  cudnnStatus_t (*set_stream_)(cudnnHandle_t, cudaStream_t);
  const char* (*error_string_)(cudnnStatus_t);
  cudnnHandle_t handle_ = nullptr;
};

class CudnnAttention : public AttentionEngine {
 public:
  // `described`, if not null: this machine does not have the GPU, and cuDNN uses this description.
  CudnnAttention(const DynamicLibrary& library, const cuda::DeviceProperties& device,
                 std::shared_ptr<fe::DeviceProperties> described)
      : compute_capability_(100 * device.major + 10 * device.minor),
        multiprocessors_(device.multiprocessors),
        described_(std::move(described)) {
    if (!described_) handle_.emplace(library);
    const std::size_t version = library.required<std::size_t()>("cudnnGetVersion")();
    description_ =
        fmt::format("cuDNN {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  }

  const std::string& why_not(const AttentionKind& kind) override { return plans_for(kind).why_not; }

  void forward(Context& ctx, const AttentionKind& kind, const Tensor& qkv, const Tensor& out,
               const Tensor& log_sum) override {
    Pointers pointers;
    bind_heads(pointers, kind, qkv);
    bind(pointers, kind, AttentionOperand::kOut, out);
    bind(pointers, kind, AttentionOperand::kLogSum, log_sum);
    execute(ctx, "attention", plans_for(kind).forward, pointers);
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
    execute(ctx, "attention_backward", plans_for(kind).backward, pointers);
  }

  std::string_view description() const override { return description_; }

 private:
  using Pointers = std::unordered_map<std::int64_t, void*>;  // by AttentionOperand
  struct Plan {
    Graph graph;
    std::int64_t workspace = 0;  // bytes
  };
  struct Plans {
    std::string why_not;
    Plan forward, backward;
  };

  Plans& plans_for(const AttentionKind& kind) {
    const auto [found, is_new] = plans_.try_emplace(kind);
    if (is_new) found->second.why_not = compile(kind, found->second);
    return found->second;
  }

  std::string compile(const AttentionKind& kind, Plans& plans) {
    if (kind.masks_documents) return "documents are masked";
    if (kind.masks_ends) return "padding is masked";
    try {
      compile(kind, plans.forward, describe_forward);
      compile(kind, plans.backward, describe_backward);
    } catch (const std::exception& refusal) {  // its function lookups throw, too
      return refusal.what();
    }
    return "";
  }

  void compile(const AttentionKind& kind, Plan& plan,
               void (*describe)(Graph&, const AttentionShape&)) {
    Graph& graph = plan.graph;
    graph.set_io_data_type(type_of(kind.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(compute_capability_)
        .set_sm_count(multiprocessors_);
    if (described_) graph.set_device_properties(described_);
    describe(graph, kind.shape);
    check(graph.validate());
    check(described_ ? graph.build_operation_graph() : graph.build_operation_graph(handle()));
    check(graph.create_execution_plans({fe::HeurMode_t::A}));
    check(graph.check_support());
    if (described_) return;
    check(graph.build_plans());
    check(graph.get_workspace_size(plan.workspace));
  }

  cudnnHandle_t handle() { return handle_->on(Stream()); }

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

  void execute(Context& ctx, const char* what, Plan& plan, Pointers& pointers) {
    TRIREME_CHECK(!described_, "attention was asked of a GPU that is only described");
    Buffer workspace;
    if (plan.workspace != 0) {
      workspace = ctx.allocator->allocate(static_cast<std::size_t>(plan.workspace),
                                          MemoryUse::kWorkspace, ctx.stream);
    }
    try {
      check(plan.graph.execute(handle_->on(ctx.stream), pointers, workspace.get()));
    } catch (const CudaError&) {
      throw;
    } catch (const std::exception& fault) {  // the frontend's lookups throw runtime_error
      throw CudaError(fmt::format("{} by {}: {}", what, description_, fault.what()));
    }
  }

  int compute_capability_;
  int multiprocessors_;
  std::shared_ptr<fe::DeviceProperties> described_;
  std::optional<Handle> handle_;
  std::string description_;
  std::map<AttentionKind, Plans> plans_;
};

constexpr int kMajorVersion = 9;

DynamicLibrary open_cudnn() {
  DynamicLibrary library(cuda_library_names("cudnn", kMajorVersion));
  fe::cudnn_dlhandle = library.native();
  return library;
}

// The frontend calls CUDA's runtime as a shared library. It looks it up by name alone, older
// versions first. (The one that is linked into this program works on the same context of the GPU.)
// Returns why it cannot be found, or nothing.
std::string show_cuda_runtime() {
  const DynamicLibrary runtime(cuda_library_names("cudart", CUDART_VERSION / 1000));
  if (!runtime.found()) return runtime.why_not();
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.path().c_str(), /*overwrite=*/0);
  return "";
}

}  // namespace

std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties& device) {
  const DynamicLibrary library = open_cudnn();
  const std::string why_not = library.found() ? show_cuda_runtime() : library.why_not();
  if (!why_not.empty()) return make_absent_attention("cuDNN", why_not);
  return std::make_shared<CudnnAttention>(library, device, nullptr);
}

std::shared_ptr<AttentionEngine> make_cudnn_attention_for(const cuda::DeviceProperties& device,
                                                          const std::string& json) {
  const DynamicLibrary library = open_cudnn();
  if (!library.found()) throw CudaError(library.why_not());
  auto described = std::make_shared<fe::DeviceProperties>();
  fe::error_t result = described->deserialize({json.begin(), json.end()});
  if (!result.is_good()) throw CudaError("cuDNN on a GPU's properties: " + result.get_message());
  return std::make_shared<CudnnAttention>(library, device, std::move(described));
}

}  // namespace trireme::ops
