// A small "training run" on a 2 x 2 x 2 grid in which something goes wrong on purpose; see
// fault_test.py for what each fault must lead to.
//
// fault_program FAULT FOLDER
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <hdf5.h>
#include <mpi.h>
#include <unistd.h>

#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"

#include "support/fake_cuda.h"

namespace {

bool hang_in_write = false;  // pwrite cannot be told otherwise

// Sleeps in the kernel for ever, as a write to a dead file server does.
void hang_in_kernel() {
  int ends[2];
  char byte = 0;
  if (pipe(ends) == 0) (void)!read(ends[0], &byte, 1);
}

}  // namespace

// Stands before the C library's: the program exports it to the libraries.
extern "C" ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  if (hang_in_write) hang_in_kernel();
  using Function = ssize_t (*)(int, const void*, size_t, off64_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pwrite64"));
  return next(file, data, size, offset);
}

extern "C" ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  return pwrite64(file, data, size, offset);
}

namespace trireme {
namespace {

constexpr std::size_t kElements = 10'000;

// What a step of training sends: sums along tensor, a message along the pipeline, sums over data.
void communicate(const ProcessGrid& grid, bool send = true) {
  std::vector<float> activations(kElements, 1.0f);
  std::vector<float> gradients(kElements, 1.0f);
  std::vector<float> message(kElements);
  const Work reduction = grid.comm(kDataAxes).all_reduce(
      Stream(), Tensor::wrap(std::span<float>(gradients)), ReduceOp::kSum);
  grid.comm(Axis::kTensor).all_reduce_host(std::span<float>(activations), ReduceOp::kSum);
  const bool first = grid.comm(Axis::kPipeline).rank() == 0;
  if (send || !first) {
    const auto direction = first ? Transfer::Direction::kSend : Transfer::Direction::kReceive;
    grid.comm(Axis::kPipeline)
        .exchange(Stream(), {{direction, first ? 1 : 0, Tensor::wrap(std::span<float>(message))}})
        .wait_host();
  }
  reduction.wait_host();
  grid.world().agree(true);
}

// Each rank writes its rows of one dataset, collectively. `victim` hangs in the write itself.
void write_collectively(const ProcessGrid& grid, const std::string& path, int victim,
                        const char* collective_buffering) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "romio_cb_write", collective_buffering);
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, *static_cast<const MPI_Comm*>(grid.world().native_mpi()), info);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const auto ranks = static_cast<hsize_t>(grid.world().size());
  const hsize_t extents[] = {ranks, kElements};
  const hsize_t start[] = {static_cast<hsize_t>(grid.world().rank()), 0};
  const hsize_t count[] = {1, kElements};
  const hid_t in_file = H5Screate_simple(2, extents, nullptr);
  H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, nullptr, count, nullptr);
  const hid_t in_memory = H5Screate_simple(2, count, nullptr);
  const hid_t dataset =
      H5Dcreate2(file, "rows", H5T_IEEE_F32LE, in_file, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
  const std::vector<float> rows(kElements, 1.0f);
  hang_in_write = grid.world().rank() == victim;
  {
    const FlightRecorder::Scope scope(grid.runtime().recorder(), grid.world(), "H5Dwrite");
    H5Dwrite(dataset, H5T_NATIVE_FLOAT, in_memory, in_file, transfer, rows.data());
  }
  grid.world().agree(true);
  std::exit(1);  // not reached: the write hangs
}

// What owns memory of a device waits for it at its end, also on the way out of a fault.
struct WaitAtTheEnd {
  const Stream& stream;
  ~WaitAtTheEnd() { stream.synchronize(); }
};

// Sums on a (scripted) device. "device_throw": rank 5 throws when it has started what nobody joins.
// "device_stuck": what the stream of rank 3 is to sum never comes.
void communicate_on_device(Runtime& runtime, const ProcessGrid& grid, const std::string& fault) {
  const auto fake =
      std::make_shared<testing::FakeCuda>(static_cast<std::uint64_t>(runtime.rank() + 1));
  fake->deadlock_seconds = 1e6;  // as patient as a GPU
  runtime.use_device(fake, 0, DeviceBackend::kMpi);
  std::vector<int> ranks(static_cast<std::size_t>(runtime.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto all = runtime.group("all", ranks);
  const cuda::OwnedStream compute(fake, 0);
  const auto memory = cuda::make_device_allocator(fake, 0);
  const WaitAtTheEnd wait{compute.get()};
  const Runtime::DeviceUse use(runtime);
  const auto sum = [&](Communicator& comm) {
    const Tensor data =
        Tensor::allocate(*memory, compute.get(), {kElements}, DType::kI32, MemoryUse::kGradients);
    fake->fill(data.raw(), 1, data.bytes(), compute.get().native());
    return comm.all_reduce(compute.get(), data, ReduceOp::kSum);
  };
  for (int step = 0; step < 3; ++step) sum(*all).wait_on(compute.get());
  compute.get().synchronize();
  if (fault == "device_throw" && runtime.rank() == 5) {
    sum(grid.comm(Axis::kTensor));
    throw DataError("shard 3 is truncated");
  }
  if (fault == "device_stuck" && runtime.rank() == 3) {
    fake->enqueue_until(compute.get(), [] { return [] { return false; }; });
  }
  sum(*all).wait_on(compute.get());
  compute.get().synchronize();
}

// MPI frees what hangs on its own communicator first of all in MPI_Finalize.
void crash_in_finalize(bool here) {
  if (!here) return;
  int key = MPI_KEYVAL_INVALID;
  const auto crash = [](MPI_Comm, int, void*, void*) { return raise(SIGSEGV); };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, crash, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

ExitStatus train(Runtime& runtime, const std::string& fault, const std::string& folder) {
  runtime.set_timeout(2.0);
  const ProcessGrid grid(runtime, {2, 2, 2});
  for (int step = 0; step < 3; ++step) communicate(grid);

  const int rank = runtime.rank();
  const std::map<std::string, std::function<void()>> faults = {
      {"none", [] {}},
      {"requeue", [] {}},
      {"throw_one",
       [&] {
         if (rank == 5) throw DataError("shard 3 is truncated");
       }},
      {"throw_two",
       [&] {
         if (rank == 5) throw DataError("shard 3 is truncated");
         if (rank == 6 || rank == 2) throw CheckpointError("step 4 is truncated");
       }},
      {"throw_all", [] { throw ConfigError("model.layers is 0"); }},
      {"sleep",
       [&] {
         while (rank == 3) sleep(1000);
       }},
      {"stop",
       [&] {
         if (rank == 6) raise(SIGSTOP);
       }},
      {"stop_first",
       [&] {
         if (rank == 0) raise(SIGSTOP);
       }},
      {"receive", [&] { communicate(grid, /*send=*/rank != 0); }},
      {"hdf5", [&] { write_collectively(grid, folder + "/hang.h5", 4, "disable"); }},
      {"hdf5_aggregator", [&] { write_collectively(grid, folder + "/hang.h5", 0, "enable"); }},
      {"device", [&] { communicate_on_device(runtime, grid, fault); }},
      {"device_throw", [&] { communicate_on_device(runtime, grid, fault); }},
      {"device_stuck", [&] { communicate_on_device(runtime, grid, fault); }},
      {"exit",
       [&] {
         if (rank == 1) std::exit(3);
       }},
      {"crash_in_finalize", [&] { crash_in_finalize(rank == 4); }},
      {"kill",
       [&] {
         if (rank == 7) raise(SIGKILL);
       }},
  };
  faults.at(fault)();
  if (fault == "crash_in_finalize") return ExitStatus::kRunFolder;
  for (int step = 0; step < 3; ++step) communicate(grid);
  return fault == "requeue" ? ExitStatus::kRequeue : ExitStatus::kDone;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  H5dont_atexit();
  trireme::Runtime runtime;
  runtime.run([&] { return trireme::train(runtime, argv[1], argv[2]); });
}
