// NCCL itself, in a world of one rank on a GPU: what the tests on a scripted one take for granted.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/runtime.h"
#include "trireme/tensor/captured_work.h"
#include "trireme/tensor/copy.h"

#include "comm/device/device_carrier.h"
#include "comm/nccl/captured_operations.h"
#include "comm/nccl/nccl_communicator.h"

namespace trireme {
namespace {

Runtime* the_runtime = nullptr;  // gtest gives tests no other way to reach it

class NcclGpu : public ::testing::Test {
 protected:
  ~NcclGpu() override { engine_.stop(); }

  std::unique_ptr<Communicator> communicator() {
    return nccl::make_communicator(session_, the_runtime->group("one", {0}), 77);
  }
  Tensor ones(std::int64_t n) {
    const Tensor host =
        Tensor::allocate(*pinned_, Stream(), {n}, DType::kF32, MemoryUse::kActivations);
    std::fill_n(host.data<float>(), n, 1.0f);
    const Tensor data =
        Tensor::allocate(*allocator_, stream_.get(), {n}, DType::kF32, MemoryUse::kActivations);
    copy(host, data, stream_.get());
    return data;
  }
  std::vector<float> read(const Work& work, const Tensor& data) {
    const Tensor host =
        Tensor::allocate(*pinned_, Stream(), data.shape(), DType::kF32, MemoryUse::kActivations);
    work.wait_on(stream_.get());
    copy(data, host, stream_.get());
    stream_.get().synchronize();
    return {host.data<float>(), host.data<float>() + data.elements()};
  }

  const std::shared_ptr<cuda::Runtime> cuda_ = cuda::make_runtime();
  const std::shared_ptr<nccl::Library> library_ = nccl::load_library();
  FlightRecorder recorder_;
  ProgressEngine engine_{recorder_};
  const cuda::OwnedStream stream_{cuda_, 0};
  nccl::Session session_{library_,
                         {.cuda = cuda_, .device = 0, .engine = &engine_, .recorder = &recorder_}};
  std::shared_ptr<Allocator> allocator_ = cuda::make_device_allocator(cuda_, 0);
  std::shared_ptr<Allocator> pinned_ = cuda::make_pinned_allocator(cuda_, 0);
};

TEST_F(NcclGpu, GoesThroughItsWholeLife) {
  std::printf("NCCL %s\n", nccl::version_text(library_->version()).c_str());
  EXPECT_GE(library_->version(), nccl::kOldestVersion);
  const std::vector<float> expected(1000, 1.0f);
  const auto first = communicator();
  const auto second = communicator();
  const Tensor data = ones(1000);
  const Tensor other = ones(1000);
  const Tensor carried = allocate_carried({first.get(), second.get()}, *allocator_, stream_.get(),
                                          {1000}, DType::kF32, MemoryUse::kGradients);
  copy(data, carried, stream_.get());
  for (Communicator* comm : {first.get(), second.get()}) {
    const Stream& stream = stream_.get();
    EXPECT_EQ(read(comm->all_reduce(stream, data, ReduceOp::kSum), data), expected);
    EXPECT_EQ(read(comm->reduce_scatter(stream, data, other, ReduceOp::kMax), other), expected);
    EXPECT_EQ(read(comm->all_gather(stream, data, other), other), expected);
    EXPECT_EQ(read(comm->broadcast(stream, data, 0), data), expected);
    EXPECT_EQ(read(comm->all_to_all(stream, data, other), other), expected);
    EXPECT_EQ(read(comm->exchange(stream, {{Transfer::Direction::kSend, 0, data},
                                           {Transfer::Direction::kReceive, 0, other}}),
                   other),
              expected);
    EXPECT_EQ(read(comm->all_reduce(stream, carried, ReduceOp::kSum), carried), expected);
    comm->all_reduce(stream, data, ReduceOp::kSum).wait_host();
    EXPECT_TRUE(comm->agree(true));
  }
  session_.check();
}

TEST_F(NcclGpu, IsCapturedAndReplayed) {
  const auto comm = communicator();
  const Stream& stream = stream_.get();
  const Tensor host_number =
      Tensor::allocate(*pinned_, Stream(), {1}, DType::kI64, MemoryUse::kWorkspace);
  const Tensor number =
      Tensor::allocate(*allocator_, stream, {1}, DType::kI64, MemoryUse::kWorkspace);
  const Tensor data = ones(1000), other = ones(1000);
  const auto step = [&] {
    comm->all_reduce(stream, data, ReduceOp::kSum).wait_on(stream);
    comm->exchange(
        stream, {{Transfer::Direction::kSend, 0, data}, {Transfer::Direction::kReceive, 0, other}});
  };
  cuda::CapturedWork captured(cuda_, stream, allocator_);
  captured.rehearse(step);
  nccl::CapturedOperations communication(session_, stream, number.address<std::int64_t>());
  communication.held_by(captured.give_up());
  captured.capture([&] {
    step();
    communication.join();
  });
  for (std::int64_t replay = 1; replay < 4; ++replay) {
    *host_number.data<std::int64_t>() = replay;
    copy(host_number, number, stream);
    cuda_->fill(data.raw(), static_cast<int>(replay), data.bytes(), stream.native());
    communication.replay(replay);
    captured.replay();
    EXPECT_EQ(read({}, other), read({}, data));
    // What is not captured may come in between.
    const Tensor plain = ones(1000);
    EXPECT_EQ(read(comm->all_reduce(stream, plain, ReduceOp::kSum), plain),
              std::vector<float>(1000, 1.0f));
  }
  engine_.drain();
  const auto finished = recorder_.finished();
  EXPECT_EQ(std::ranges::count_if(finished, [](const Operation& o) { return o.name == "send"; }),
            4);
  session_.check();
}

TEST_F(NcclGpu, IsAbortedByAnotherThread) {
  const auto comm = communicator();
  const Tensor data = ones(1000);
  comm->all_reduce(stream_.get(), data, ReduceOp::kSum).wait_on(stream_.get());
  std::thread([this] {
    session_.fail(std::make_exception_ptr(NcclError("an error on purpose")));
  }).join();
  stream_.get().synchronize();
  EXPECT_THROW(comm->all_reduce(stream_.get(), data, ReduceOp::kSum), NcclError);
}

TEST_F(NcclGpu, TellsAWrongCallInItsOwnWords) {
  nccl::CommHandle comm = nullptr;
  const nccl::Result result = library_->init_rank(comm, "none", 0, {}, 0, {});
  EXPECT_NE(result, nccl::Result::kSuccess);
  EXPECT_FALSE(library_->words(result, nullptr).empty());
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const trireme::cuda::Devices devices = trireme::cuda::make_runtime()->devices();
  if (devices.count == 0) {
    std::printf("skipped: %s\n", devices.why_none.c_str());
    return 77;
  }
  try {
    trireme::nccl::load_library();
  } catch (const trireme::NcclError& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  trireme::Runtime runtime;
  trireme::the_runtime = &runtime;
  runtime.run([] { return static_cast<trireme::ExitStatus>(RUN_ALL_TESTS()); });
}
