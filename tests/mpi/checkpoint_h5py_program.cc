// Writes the checkpoint that checkpoint_h5py_test.py reads: checkpoint_h5py_program FOLDER
#include <numeric>
#include <vector>

#include "trireme/base/log.h"
#include "trireme/comm/runtime.h"
#include "trireme/io/checkpoint.h"

int main(int, char** argv) {
  trireme::Runtime runtime;
  runtime.run([&] {
    // (6, 4), dealt by columns: element (r, c) is 4 r + c.
    const auto rank = static_cast<std::int64_t>(runtime.rank());
    const std::int64_t width = 4 / runtime.size();
    std::vector<float> part;
    for (std::int64_t r = 0; r < 6; ++r) {
      for (std::int64_t c = 0; c < width; ++c) {
        part.push_back(static_cast<float>(4 * r + rank * width + c));
      }
    }
    trireme::TensorSlice slice;
    slice.name = "parameters/blocks.0.attention.query.weight";
    slice.global = {6, 4};
    slice.start = {0, rank * width};
    slice.extent = {6, width};
    slice.local = trireme::Tensor::wrap(part.data(), {6, width}, trireme::DType::kF32);
    trireme::CheckpointInfo info;
    info.step = 1000;
    info.samples = 32000;
    info.seed = 7;
    info.config = "[model]\nlayers=2\n";
    const std::vector<trireme::TensorSlice> owned = {slice};
    trireme::write_checkpoint(runtime.world(), runtime.recorder(), argv[1], info, owned);
    return trireme::ExitStatus::kDone;
  });
}
