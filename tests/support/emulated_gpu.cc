// The GPU of the program `trireme_emulated`: stands in for CUDA, cuBLASLt and NCCL, with memory,
// streams and kernels on the host. Queued work runs when something waits for it, so that a missing
// wait shows.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

#include "ops/attention_engine.h"
#include "ops/convolution_engine.h"
#include "support/fake_cublaslt.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/kernel_queue.h"

namespace trireme {
namespace {

// Environment variables:
//   TRIREME_EMULATED_GPUS    the number of GPUs; default 1
//   TRIREME_EMULATOR_SEED    streams, blocks and threads move in an order drawn from this seed
//   TRIREME_EMULATED_WAITS   a file to write: how many times the host has waited for the GPU
//   TRIREME_EMULATED_NCCL    a file to write, with the rank added to its name: the most windows,
//                            buffers and communicators of NCCL that the rank has had, and the
//                            number of connections that were made after its first matrix product;
//                            how many all-gathers had all memory registered, and how many not
//   TRIREME_EMULATED_FAULT   a fault that a test plants:
//                            no-event-wait: the host does not wait for events;
//                            no-block-scales: the GPU has no products of e4m3;
//                            no-capture: the end of a step's capture fails, only on rank
//                            TRIREME_EMULATED_FAULT_RANK if that is set;
//                            rank-order: each rank of NCCL adds contributions in its own order
//   TRIREME_EMULATED_NO_CUDNN  the reason why there is no cuDNN, likewise only on that rank
//   TRIREME_EMULATED_ORDER   own: each communicator of NCCL adds contributions in its own order
std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string text = setting(name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

bool is_fault_rank() {
  const std::string rank = setting("TRIREME_EMULATED_FAULT_RANK");
  return rank.empty() || rank == setting("PMI_RANK");
}

class EmulatedGpu : public testing::FakeCuda {
 public:
  EmulatedGpu()
      : FakeCuda(number("TRIREME_EMULATOR_SEED", 0), kMemory),
        waits_(setting("TRIREME_EMULATED_FAULT") != "no-event-wait") {
    device_count = static_cast<int>(number("TRIREME_EMULATED_GPUS", 1));
    uuid += setting("SLURMD_NODENAME");  // the name of a node, for us too: it has GPUs of its own
    emulator::set_order(number("TRIREME_EMULATOR_SEED", 0));
    emulator::set_queue(
        [this](void* stream, std::function<void()> kernel) { queue(stream, std::move(kernel)); });
    library_.workspace = 4096;
    if (setting("TRIREME_EMULATED_FAULT") == "no-block-scales") {
      library_.block_scales = testing::FakeCublasLt::BlockScales::kNotOfGpu;
    }
    library_.enqueue = [this](cudaStream_t stream, std::function<void()> product) {
      // A rank that computes by itself first is not among others yet.
      const bool among_others = nccl_ != nullptr && nccl_->alive() > 0;
      if (among_others && !connected_) connected_ = nccl_->connections();
      queue(stream, std::move(product));
    };
  }
  cuda::Devices devices() override {
    return {device_count, device_count == 0 ? "the emulated machine has none" : ""};
  }
  void synchronize(cuda::StreamHandle stream) override {
    FakeCuda::synchronize(stream);
    report();
  }
  // A real GPU continues by itself. This one moves when somebody looks: another rank may wait for
  // work on this rank's streams while this rank's host waits for MPI.
  bool done(cuda::EventHandle event) override {
    step();
    return FakeCuda::done(event);
  }
  void move() override { step(); }
  Graph end_capture(cuda::StreamHandle stream) override {
    const Graph graph = FakeCuda::end_capture(stream);
    if (setting("TRIREME_EMULATED_FAULT") != "no-capture" || !is_fault_rank()) return graph;
    destroy_graph(graph.handle);
    throw CudaError("end_capture: operation not supported");
  }
  void synchronize_event(cuda::EventHandle event) override {
    if (waits_) FakeCuda::synchronize_event(event);
    report();
  }

  // The duration of a kernel is the time that it takes on the host.
  double device_seconds() override { return static_cast<double>(now_ns()) * 1e-9; }

  ops::CublasLt library() {
    library_.proposals = 3;
    return library_.table();
  }
  // Made at the first call, when MPI has started. It is never destroyed, because MPI may end
  // earlier.
  testing::FakeNccl& nccl() {
    if (nccl_ == nullptr) {
      nccl_ = new testing::FakeNccl(*this, number("TRIREME_EMULATOR_SEED", 0));
      nccl_->connects = true;
      using Order = testing::FakeNccl::Order;
      if (setting("TRIREME_EMULATED_ORDER") == "own") nccl_->order = Order::kOfCommunicator;
      if (setting("TRIREME_EMULATED_FAULT") == "rank-order") nccl_->order = Order::kOfRank;
    }
    return *nccl_;
  }

 private:
  static constexpr std::size_t kMemory = std::size_t{8} << 30;  // enough for NCCL beside tensors

  void queue(void* stream, std::function<void()> work) {
    enqueue(Stream({DeviceKind::kCuda, 0}, stream, this), std::move(work));
  }

  // Prints faults such as work on freed memory. It is not called at the end, since the program then
  // just exits.
  void report() {
    for (; reported_ < faults().size(); ++reported_) {
      report_line("emulated GPU: " + faults()[reported_]);
    }
    const auto of_nccl = nccl_ == nullptr ? std::vector<std::string>() : nccl_->faults();
    for (; reported_of_nccl_ < of_nccl.size(); ++reported_of_nccl_) {
      report_line("emulated NCCL: " + of_nccl[reported_of_nccl_]);
    }
    if (!waits_file_.empty()) std::ofstream(waits_file_) << host_waits() << '\n';
    if (nccl_ != nullptr && !nccl_file_.empty()) {
      using Kind = testing::FakeNccl::Registration;
      windows_ = std::max(windows_, nccl_->registered(Kind::kWindow));
      buffers_ = std::max(buffers_, nccl_->registered(Kind::kBuffer));
      communicators_ = std::max(communicators_, nccl_->alive());
      const std::size_t all = nccl_->connections();
      const auto gathers = nccl_->places("all_gather");
      std::ofstream(nccl_file_) << windows_ << ' ' << buffers_ << ' ' << communicators_ << ' '
                                << all - connected_.value_or(all) << ' ' << gathers.registered
                                << ' ' << gathers.elsewhere << '\n';
    }
  }

  const bool waits_;
  const std::string waits_file_ = setting("TRIREME_EMULATED_WAITS");
  const std::string nccl_file_ = setting("TRIREME_EMULATED_NCCL").empty()
                                     ? ""
                                     : setting("TRIREME_EMULATED_NCCL") + setting("PMI_RANK");
  std::size_t reported_ = 0, reported_of_nccl_ = 0;
  testing::FakeNccl* nccl_ = nullptr;
  std::size_t windows_ = 0, buffers_ = 0, communicators_ = 0;  // the most at one time
  std::optional<std::size_t> connected_;  // connections before the first product
  testing::FakeCublasLt library_;
};

// Returns this process's GPU. It outlives everything that was made with it.
std::shared_ptr<EmulatedGpu> emulated_gpu() {
  static const auto gpu = std::make_shared<EmulatedGpu>();
  return gpu;
}

}  // namespace

namespace cuda {

std::shared_ptr<Runtime> make_runtime() {
  return emulated_gpu();
}

}  // namespace cuda

namespace nccl {

std::shared_ptr<Library> load_library() {
  setenv(kLaunchOrder, "1", /*overwrite=*/0);  // like the real one
  return {std::shared_ptr<Library>(), &emulated_gpu()->nccl()};
}

}  // namespace nccl

namespace ops {

std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const cuda::DeviceProperties& device,
                                                   const GpuSettings& settings) {
  return make_cublaslt_matmul(emulated_gpu()->library(), std::size_t{1} << 20,
                              product_settings(device, settings));
}

std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties&) {
  const std::string why = setting("TRIREME_EMULATED_NO_CUDNN");
  return make_absent_attention("cuDNN",
                               why.empty() || !is_fault_rank() ? "not on an emulated GPU" : why);
}

std::shared_ptr<ConvolutionEngine> make_cudnn_convolution(const cuda::DeviceProperties&, bool) {
  return nullptr;
}

}  // namespace ops
}  // namespace trireme
