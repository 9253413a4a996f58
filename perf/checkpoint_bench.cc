// Measures checkpoints of 256 MiB: write_checkpoint (to the disk, verified), Checkpoint::open (all
// checksums) and read. perf/checkpoint_bench runs it with several numbers of ranks, and dd to
// compare.
//   checkpoint_bench_program FOLDER SPLIT   (SPLIT: rows, columns, flat)
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/comm/runtime.h"
#include "trireme/io/checkpoint.h"

namespace {

using namespace trireme;

constexpr std::int64_t kRows = 2048, kColumns = 4096;  // 32 MiB each
constexpr int kTensors = 8;
constexpr double kGiga = 1e9;

std::vector<TensorSlice> deal(const std::string& split, int rank, int ranks,
                              std::vector<std::vector<float>>& memory) {
  const std::int64_t part = kRows * kColumns / ranks;
  memory.assign(kTensors, std::vector<float>(static_cast<std::size_t>(part), 0.5f));
  std::vector<TensorSlice> slices;
  for (int i = 0; i < kTensors; ++i) {
    TensorSlice slice;
    slice.name = fmt::format("parameters/blocks.{}.weight", i);
    slice.global = slice.extent = Shape{kRows, kColumns};
    slice.start = {0, 0};
    const int dimension = split == "columns" ? 1 : 0;
    if (split == "flat") {
      slice.range = FlatRange{part * rank, part * (rank + 1)};
    } else {
      const std::int64_t size = slice.global[dimension] / ranks;
      slice.extent = slice.extent.with(dimension, size);
      slice.start[static_cast<std::size_t>(dimension)] = size * rank;
    }
    float* values = memory[static_cast<std::size_t>(i)].data();
    for (std::int64_t e = 0; e < part; ++e) values[e] = static_cast<float>(e % 8191);
    slice.local = Tensor::wrap(values, split == "flat" ? Shape{part} : slice.extent, DType::kF32);
    slices.push_back(std::move(slice));
  }
  return slices;
}

// Returns the seconds until the slowest rank is done.
template <class F>
double timed(Communicator& world, F body) {
  world.barrier().wait_host();
  const Stopwatch watch;
  body();
  return world.all_reduce_host(watch.seconds(), ReduceOp::kMax);
}

}  // namespace

int main(int, char** argv) {
  Runtime runtime;
  runtime.run([&] {
    Communicator& world = runtime.world();
    const std::string folder = argv[1], split = argv[2];
    std::vector<std::vector<float>> memory;
    const auto slices = deal(split, runtime.rank(), runtime.size(), memory);
    const double bytes = 4.0 * kTensors * kRows * kColumns;
    double write_s = 1e9, open_s = 1e9, read_s = 1e9;
    for (int round = 0; round < 3; ++round) {
      CheckpointInfo info;
      info.step = round;
      std::string path;
      write_s =
          std::min(write_s, timed(world, [&] {
                     path = write_checkpoint(world, runtime.recorder(), folder, info, slices,
                                             {.keep = 1, .generation = 0, .check_still_ours = {}});
                   }));
      std::optional<Checkpoint> checkpoint;
      open_s = std::min(open_s, timed(world, [&] { checkpoint = Checkpoint::open(world, path); }));
      read_s = std::min(read_s, timed(world, [&] { checkpoint->read(world, slices); }));
    }
    if (runtime.rank() == 0) {
      print_line(
          fmt::format("{} rank(s), {:<8} write {:5.2f} GB/s   check {:5.2f} GB/s   read "
                      "{:5.2f} GB/s",
                      runtime.size(), split, bytes / write_s / kGiga, bytes / open_s / kGiga,
                      bytes / read_s / kGiga));
    }
    return ExitStatus::kDone;
  });
}
