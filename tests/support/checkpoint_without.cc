// Writes a checkpoint anew without one of its tensors or further attributes, as a version would
// that did not know it; or with that tensor infinite, as one would that did not look.
// usage: checkpoint_without TENSOR|ATTRIBUTE FOLDER/step-NNNNNNNN.h5 [infinite]
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/runtime.h"
#include "trireme/io/checkpoint.h"

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return 2;
  const bool stays = count == 4;
  const std::string left_out = arguments[1], path = arguments[2];
  trireme::Runtime runtime;
  runtime.run([&] {
    const auto checkpoint = trireme::Checkpoint::open(runtime.world(), path);
    trireme::CheckpointInfo info = checkpoint.info();
    if (info.extra.erase(left_out) == 0 && !checkpoint.contents().find(left_out)) {
      throw trireme::CheckpointError(path + ": holds no " + left_out);
    }
    std::vector<std::vector<char>> memory;
    std::vector<trireme::TensorSlice> slices;
    for (const trireme::CheckpointTensor& tensor : checkpoint.contents().tensors) {
      if (tensor.name == left_out && !stays) continue;
      memory.emplace_back(static_cast<std::size_t>(tensor.bytes()));
      slices.push_back(trireme::TensorSlice::whole(
          tensor.name, trireme::Tensor::wrap(memory.back().data(), tensor.shape, tensor.dtype)));
    }
    checkpoint.read(runtime.world(), slices);
    for (const trireme::TensorSlice& slice : slices) {
      if (slice.name != left_out) continue;
      std::ranges::fill(slice.local.span<float>(), std::numeric_limits<float>::infinity());
    }
    const std::string folder = std::filesystem::path(path).parent_path();
    trireme::write_checkpoint(runtime.world(), runtime.recorder(), folder, info, slices);
    return trireme::ExitStatus::kDone;
  });
}
