#include "ops/cudnn.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend's own name for the library, as dlopen gave it
}

namespace trireme::ops::cudnn {
namespace {

constexpr int kMajorVersion = 9;

DynamicLibrary open_library() {
  DynamicLibrary library(cuda_library_names("cudnn", kMajorVersion));
  fe::cudnn_dlhandle = library.native();
  return library;
}

DynamicLibrary open_required_library() {
  DynamicLibrary library = open_library();
  if (!library.found()) throw CudaError(library.why_not());
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

void check(fe::error_t result) {
  if (result.is_good()) return;
  const std::string message = result.get_message();
  throw Refusal(message.substr(0, message.find('\n')));
}

fe::DataType_t type_of(DType dtype) {
  if (dtype == DType::kBF16) return fe::DataType_t::BFLOAT16;
  if (dtype == DType::kF16) return fe::DataType_t::HALF;
  if (dtype == DType::kF32) return fe::DataType_t::FLOAT;
  throw Refusal(fmt::format("not in {}", name_of(dtype)));
}

Handle::Handle(const DynamicLibrary& library)
    : destroy_(library.required<cudnnStatus_t(cudnnHandle_t)>("cudnnDestroy")),
      set_stream_(library.required<cudnnStatus_t(cudnnHandle_t, cudaStream_t)>("cudnnSetStream")),
      error_string_(library.required<const char*(cudnnStatus_t)>("cudnnGetErrorString")) {
  say("cudnnCreate", library.required<cudnnStatus_t(cudnnHandle_t*)>("cudnnCreate")(&handle_));
}

cudnnHandle_t Handle::on(const Stream& stream) {
  say("cudnnSetStream", set_stream_(handle_, static_cast<cudaStream_t>(stream.native())));
  return handle_;
}

void Handle::say(const char* call, cudnnStatus_t status) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw CudaError(fmt::format("{}: {}", call, error_string_(status)));
}

std::string Device::why_not() {
  const DynamicLibrary library = open_library();
  return library.found() ? show_cuda_runtime() : library.why_not();
}

Device::Device(const cuda::DeviceProperties& device, DynamicLibrary library)
    : library_(std::move(library)),
      compute_capability_(100 * device.major + 10 * device.minor),
      multiprocessors_(device.multiprocessors) {
  const std::size_t version = library_.required<std::size_t()>("cudnnGetVersion")();
  description_ =
      fmt::format("cuDNN {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Device::Device(const cuda::DeviceProperties& device) : Device(device, open_required_library()) {}

Device::Device(const cuda::DeviceProperties& device, const std::string& json)
    : Device(device, open_required_library()) {
  described_ = std::make_shared<fe::DeviceProperties>();
  fe::error_t result = described_->deserialize({json.begin(), json.end()});
  if (!result.is_good()) throw CudaError("cuDNN on a GPU's properties: " + result.get_message());
}

void Device::begin(fe::graph::Graph& graph, const Compilation& how) const {
  graph.set_io_data_type(type_of(how.io))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(compute_capability_)
      .set_sm_count(multiprocessors_);
  if (described_) graph.set_device_properties(described_);
}

void Device::finish(Plan& plan, const Compilation& how) {
  fe::graph::Graph& graph = plan.graph;
  check(graph.validate());
  check(described_ ? graph.build_operation_graph() : graph.build_operation_graph(handle(Stream())));
  check(graph.create_execution_plans(how.engines));
  graph.deselect_numeric_notes(how.without);
  graph.deselect_workspace_greater_than(how.most_workspace);
  check(graph.check_support());
  if (described_) return;
  check(graph.build_plans());
  check(graph.get_workspace_size(plan.workspace));
}

void Device::execute(Context& ctx, const char* what, Plan& plan, Pointers& pointers) {
  TRIREME_CHECK(!described_, fmt::format("{} was asked of a GPU that is only described", what));
  Buffer workspace;
  if (plan.workspace != 0) {
    workspace = ctx.allocator->allocate(static_cast<std::size_t>(plan.workspace),
                                        MemoryUse::kWorkspace, ctx.stream);
  }
  try {
    check(plan.graph.execute(handle(ctx.stream), pointers, workspace.get()));
  } catch (const CudaError&) {
    throw;
  } catch (const std::exception& fault) {  // the frontend's lookups throw runtime_error
    throw CudaError(fmt::format("{} by {}: {}", what, description_, fault.what()));
  }
}

cudnnHandle_t Device::handle(const Stream& stream) {
  if (!handle_) handle_.emplace(library_);
  return handle_->on(stream);
}

}  // namespace trireme::ops::cudnn
