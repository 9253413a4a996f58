// A rank with a scripted GPU and a scripted NCCL, for the tests of communicators over NCCL.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/device_carrier.h"
#include "comm/faults/recorder_impl.h"
#include "comm/nccl/nccl_communicator.h"
#include "support/comm_values.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/mpi_test.h"

namespace trireme::testing {

inline constexpr int kLane = 77;

inline std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(runtime().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A rank's GPU and NCCL.
class Machine {
 public:
  explicit Machine(std::uint64_t seed)
      : cuda_(std::make_shared<FakeCuda>(seed + static_cast<std::uint64_t>(runtime().rank()))),
        nccl_(*cuda_, seed * 31 + static_cast<std::uint64_t>(runtime().rank())) {
    cuda_->uuid = "fake " + std::to_string(runtime().rank());
    stream_.emplace(cuda_, 0);
    allocator_ = cuda::make_device_allocator(cuda_, 0);
    session_.emplace(std::shared_ptr<nccl::Library>(std::shared_ptr<void>(), &nccl_), parts());
  }
  ~Machine() {
    engine_.stop();
    allocator_.reset();  // it holds events
    session_.reset();
    EXPECT_TRUE(cuda_->faults().empty()) << cuda_->faults().front();
    EXPECT_TRUE(nccl_.faults().empty()) << nccl_.faults().front();
    EXPECT_EQ(nccl_.alive(), 0u);
    EXPECT_EQ(nccl_.memory(), 0u);
    EXPECT_EQ(cuda_->events(), 0u);
    EXPECT_EQ(cuda_->streams(), 1u);
    // After this no rank uses another rank's NCCL any more.
    runtime().world().barrier().wait_host();
  }

  DeviceCarrierParts parts() {
    return {
        .cuda = cuda_, .device = 0, .engine = &engine_, .recorder = &recorder_, .timeout_s = 10.0};
  }
  std::unique_ptr<Communicator> communicator(const std::string& name = "all",
                                             const std::vector<int>& ranks = all_ranks()) {
    return nccl::make_communicator(*session_, runtime().group(name, ranks), kLane);
  }
  const Stream& stream() const { return stream_->get(); }

  // Returns memory on the GPU. A queued kernel, which has not run yet, will write the values.
  template <class T>
  Tensor on_device(const std::vector<T>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    const Tensor tensor =
        Tensor::allocate(*allocator_, stream(), {n}, dtype_of<T>(), MemoryUse::kActivations);
    cuda_->enqueue(stream(), [values, to = tensor.address<T>()] { std::ranges::copy(values, to); });
    return tensor;
  }
  // Returns a tensor of ones in the memory that is best for the communicators.
  Tensor carried(const std::vector<Communicator*>& carriers, std::int64_t n) {
    const Tensor tensor =
        allocate_carried(carriers, *allocator_, stream(), {n}, DType::kF32, MemoryUse::kGradients);
    cuda_->enqueue(stream(), [n, to = tensor.address<float>()] { std::fill_n(to, n, 1.0f); });
    return tensor;
  }
  std::size_t counted(MemoryUse use) const {
    return allocator_->stats().live[static_cast<std::size_t>(use)];
  }
  std::size_t buffers() const { return nccl_.registered(FakeNccl::Registration::kBuffer); }
  std::size_t windows() const { return nccl_.registered(FakeNccl::Registration::kWindow); }

  template <class T>
  std::vector<T> read(const Work& work, const Tensor& tensor) {
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    work.wait_on(stream());
    cuda_->enqueue(stream(), [&values, from = tensor.address<T>()] {
      std::copy_n(from, values.size(), values.begin());
    });
    stream().synchronize();
    return values;
  }

  FakeCuda& cuda() { return *cuda_; }
  const std::shared_ptr<FakeCuda>& shared_cuda() { return cuda_; }
  const std::shared_ptr<Allocator>& allocator() { return allocator_; }
  void drain() { engine_.drain(); }
  FakeNccl& nccl() { return nccl_; }
  nccl::Session& session() { return *session_; }
  FlightRecorder& recorder() { return recorder_; }

 private:
  std::shared_ptr<FakeCuda> cuda_;
  FakeNccl nccl_;
  std::optional<cuda::OwnedStream> stream_;
  std::shared_ptr<Allocator> allocator_;
  FlightRecorder recorder_;
  ProgressEngine engine_{recorder_};
  std::optional<nccl::Session> session_;
};

template <class T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int value = (rank * 7919 + static_cast<int>(i) * 131) % 61;
    result[i] = T(static_cast<float>(value));
  }
  return result;
}

}  // namespace trireme::testing
