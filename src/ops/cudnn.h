// What the operations that cuDNN computes have in common: its library, a device, and graphs that
// are compiled for it. NVIDIA's header-only frontend describes the graphs. It finds cuDNN's
// functions in the library that this part opens.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

// Options of the frontend: look functions up at run time, and include no JSON parser.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/ops/context.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops::cudnn {

namespace fe = cudnn_frontend;

// Why cuDNN does not compute something, in a few words: the first line of its message, without the
// log's prefixes.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Refusal if the result is an error.
void check(fe::error_t result);

// Throws Refusal for types that no graph of ours has.
fe::DataType_t type_of(DType dtype);

// A graph that is compiled for a device.
struct Plan {
  fe::graph::Graph graph;
  std::int64_t workspace = 0;  // bytes
};

// What `graph` reads and writes; its intermediate results are fp32.
struct Compilation {
  DType io = DType::kBF16;
  std::vector<fe::HeurMode_t> engines = {fe::HeurMode_t::A};  // whose proposals are tried, in order
  std::vector<fe::NumericalNote_t> without = {};  // engines with these notes are left out
  // So are engines that need more workspace, in bytes. What is asked for is allocated for a call.
  std::int64_t most_workspace = std::numeric_limits<std::int64_t>::max();
};

// A cuDNN handle on the calling thread's device.
class Handle {
 public:
  explicit Handle(const DynamicLibrary& library);
  ~Handle() { destroy_(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t on(const Stream& stream);

 private:
  void say(const char* call, cudnnStatus_t status) const;

  cudnnStatus_t (*destroy_)(cudnnHandle_t);
  cudnnStatus_t (*set_stream_)(cudnnHandle_t, cudaStream_t);
  const char* (*error_string_)(cudnnStatus_t);
  cudnnHandle_t handle_ = nullptr;
};

// A GPU that cuDNN compiles for: that of the calling thread, or one that is only described.
class Device {
 public:
  // Returns why cuDNN cannot be used on this machine, or nothing.
  static std::string why_not();
  // `device`: the properties of the calling thread's device. Only where why_not() is empty.
  explicit Device(const cuda::DeviceProperties& device);
  // A GPU that this machine does not have. `json` is cuDNN's description of it
  // (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Throws CudaError if cuDNN does not open, or does
  // not understand the description.
  Device(const cuda::DeviceProperties& device, const std::string& json);

  // Compiles what describe(graph) adds to the plan's graph. For a device that is only described it
  // does everything but load the code. Throws Refusal, or what the frontend's lookups throw.
  template <class Describe>
  void compile(Plan& plan, const Compilation& how, const Describe& describe) {
    begin(plan.graph, how);
    describe(plan.graph);
    finish(plan, how);
  }

  using Pointers = std::unordered_map<std::int64_t, void*>;  // by the graph's ids
  // Queues the graph on the context's stream. `what` names it in faults. Throws CudaError.
  void execute(Context& ctx, const char* what, Plan& plan, Pointers& pointers);

  const std::string& description() const { return description_; }  // "cuDNN 9.19.0"

 private:
  Device(const cuda::DeviceProperties& device, DynamicLibrary library);
  void begin(fe::graph::Graph& graph, const Compilation& how) const;
  void finish(Plan& plan, const Compilation& how);
  cudnnHandle_t handle(const Stream& stream);

  DynamicLibrary library_;
  int compute_capability_;
  int multiprocessors_;
  std::shared_ptr<fe::DeviceProperties> described_;  // null: the calling thread's device
  std::optional<Handle> handle_;                     // from its first use on
  std::string description_;
};

}  // namespace trireme::ops::cudnn
