// A small "training run" on a 2 x 1 x 2 grid whose tensors are on GPUs, with a GPU and a NCCL that
// are scripted, in which something goes wrong on purpose; see nccl_fault_test.py for what each
// fault must lead to.
//
// nccl_fault_program FAULT FOLDER (which it does not need)
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/tensor/captured_work.h"

#include "support/fake_cuda.h"
#include "support/fake_nccl.h"

namespace trireme {
namespace {

using testing::FakeCuda;
using testing::FakeNccl;

// What owns memory of a device waits for it at its end, also on the way out of a fault, and may
// take its time.
struct WaitAtTheEnd {
  const Stream& stream;
  useconds_t longer = 0;
  ~WaitAtTheEnd() {
    stream.synchronize();
    usleep(longer);
  }
};

class Run {
 public:
  Run(Runtime& runtime, std::shared_ptr<FakeCuda> cuda)
      : grid_(runtime, {2, 1, 2}),
        cuda_(std::move(cuda)),
        stream_(cuda_, 0),
        allocator_(cuda::make_device_allocator(cuda_, 0)),
        wait_{.stream = stream_.get()},
        use_(runtime) {}

  // Sums along tensor, then over data, and a verdict by MPI. Rank `missing` leaves the second out.
  void step(int missing = -1) {
    const Tensor data = sum_along_tensor();
    const float* values = data.address<float>();
    if (grid_.runtime().rank() == missing) return;
    grid_.comm(kDataAxes).all_reduce(stream_.get(), data, ReduceOp::kSum).wait_on(stream_.get());
    float first = 0;
    cuda_->enqueue(stream_.get(), [values, &first] { first = values[0]; });
    stream_.get().synchronize();
    TRIREME_CHECK(first == 4.0f, "a wrong sum: " + std::to_string(first));
    agree();
  }
  // A captured step, replayed twice: the second time where `comes` says so.
  void replay_twice(const std::function<bool()>& comes) {
    const Stream& stream = stream_.get();
    const Tensor number =
        Tensor::allocate(*allocator_, stream, {1}, DType::kI64, MemoryUse::kWorkspace);
    const Tensor data =
        Tensor::allocate(*allocator_, stream, {100}, DType::kF32, MemoryUse::kActivations);
    auto* step = number.address<std::int64_t>();
    cuda::CapturedWork captured(cuda_, stream, allocator_);
    const auto communication = grid_.runtime().capture(stream, step);
    communication->held_by(captured.give_up());
    captured.capture([&] {
      grid_.comm(Axis::kTensor).all_reduce(stream, data, ReduceOp::kSum).wait_on(stream);
      grid_.comm(kDataAxes).all_reduce(stream, data, ReduceOp::kSum);
      communication->join();
    });
    for (std::int64_t replay = 1; replay <= 2; ++replay) {
      if (replay == 2 && !comes()) return;
      cuda_->enqueue(stream, [step, replay] { *step = replay; });
      communication->replay(replay);
      captured.replay();
      stream.synchronize();
    }
  }
  void end_slowly() { wait_.longer = 1'000'000; }
  void synchronize() { stream_.get().synchronize(); }
  void agree() { grid_.world().agree(true); }
  void put_on_the_world() {
    const Tensor data =
        Tensor::allocate(*allocator_, stream_.get(), {100}, DType::kF32, MemoryUse::kActivations);
    grid_.world().all_reduce(stream_.get(), data, ReduceOp::kSum);
  }

  // Queues it; the stream waits for the other rank.
  Tensor sum_along_tensor() {
    Tensor data =
        Tensor::allocate(*allocator_, stream_.get(), {100}, DType::kF32, MemoryUse::kActivations);
    float* values = data.address<float>();
    cuda_->enqueue(stream_.get(), [values] { std::fill_n(values, 100, 1.0f); });
    grid_.comm(Axis::kTensor)
        .all_reduce(stream_.get(), data, ReduceOp::kSum)
        .wait_on(stream_.get());
    return data;
  }

 private:
  const ProcessGrid grid_;
  std::shared_ptr<FakeCuda> cuda_;
  const cuda::OwnedStream stream_;
  std::shared_ptr<Allocator> allocator_;
  WaitAtTheEnd wait_;
  const Runtime::DeviceUse use_;
};

ExitStatus train(Runtime& runtime, FakeNccl& nccl, std::shared_ptr<FakeCuda> cuda,
                 const std::string& fault) {
  const int rank = runtime.rank();
  cuda->deadlock_seconds = 1e6;  // as patient as a GPU
  cuda->uuid = fault == "shared" ? "one" : "fake " + std::to_string(rank);
  if (fault == "version" && rank == 2) nccl.reported_version = 22703;
#ifdef __SANITIZE_THREAD__
  runtime.set_timeout(6.0);  // threads are slow to answer there, which would count as lost
#else
  runtime.set_timeout(2.0);
#endif
  runtime.use_device(cuda, 0, DeviceBackend::kNccl);
  {
    Run run(runtime, std::move(cuda));
    for (int step = 0; step < 3; ++step) run.step();
    const std::map<std::string, std::function<void()>> faults = {
        {"none", [] {}},
        {"host_only", [&] { run.put_on_the_world(); }},
        {"call",
         [&] {
           if (rank == 1) nccl.fail_call(1, FakeNccl::Result::kSystemError, false);
         }},
        {"state",
         [&] {
           if (rank == 3) nccl.set_state(FakeNccl::Result::kSystemError);
         }},
        {"state_in_mpi",  // rank 3 waits there, rank 2 on the device for what rank 3 has given up
         [&] {
           std::jthread later;  // when rank 3 has come there
           if (rank == 3) {
             run.sum_along_tensor();
             later = std::jthread([&] {
               usleep(200'000);
               nccl.set_state(FakeNccl::Result::kSystemError);
             });
           }
           if (rank == 2) {
             usleep(500'000);
             run.sum_along_tensor();
             run.synchronize();
           }
           run.agree();
         }},
        {"throw",
         [&] {
           if (rank == 2) throw DataError("shard 3 is truncated");
         }},
        {"throw_slowly",
         [&] {
           nccl.abort_reaches_peers = true;
           if (rank != 2) return;
           run.end_slowly();
           throw DataError("shard 3 is truncated");
         }},
        {"abort_stuck",
         [&] {
           runtime.set_timeout(600.0);
           if (rank != 2) run.agree();
           nccl.on_abort = [] { sleep(1000); };
           throw DataError("shard 3 is truncated");
         }},
        {"group_abort_stuck",
         [&] {
           runtime.set_timeout(600.0);
           const ProcessGrid more(runtime, {4, 1, 1});  // ends before the use of the device
           if (rank != 2) run.agree();
           nccl.on_abort = [] { sleep(1000); };
           throw DataError("shard 3 is truncated");
         }},
        {"throw_stuck",
         [&] {
           if (rank != 2) run.agree();  // not joined: the others wait in MPI
           run.sum_along_tensor();
           throw DataError("shard 3 is truncated");
         }},
        {"missing",
         [&] {
           run.step(/*missing=*/3);
           while (rank == 3) sleep(1000);
         }},
        {"missing_replay",
         [&] {
           run.replay_twice([&] { return rank != 3; });
           while (rank == 3) sleep(1000);
         }},
        {"replay_state",
         [&] {
           run.replay_twice([&] {
             if (rank == 3) nccl.set_state(FakeNccl::Result::kSystemError);
             return rank != 2;
           });
           run.agree();
         }},
        {"replay_throw",  // while both communicators stand in the graph
         [&] {
           run.replay_twice([&] {
             if (rank == 2) throw DataError("shard 3 is truncated");
             return true;
           });
         }},
        {"sleep",
         [&] {
           while (rank == 0) sleep(1000);
         }},
    };
    faults.at(fault)();
    for (int step = 0; step < 3; ++step) run.step();
  }
  TRIREME_CHECK(nccl.alive() == 0 && nccl.aborted() == 0, "communicators were not ended");
  TRIREME_CHECK(nccl.faults().empty(), nccl.faults().front());
  return ExitStatus::kDone;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  trireme::Runtime runtime;
  const auto seed = static_cast<std::uint64_t>(runtime.rank()) + 1;
  auto cuda = std::make_shared<trireme::testing::FakeCuda>(seed);
  trireme::testing::FakeNccl nccl(*cuda, seed);
  runtime.run([&] { return trireme::train(runtime, nccl, cuda, argv[1]); });
}
