// How the vocabulary's matrix lies in memory, and how many rows its loss works on at a time.
#pragma once

#include <cstdint>

#include "trireme/tensor/dtype.h"

namespace trireme::nn {

// Memory pads the rows of the vocabulary's matrix on each rank to a multiple of this. Kernels for
// matrix products load 16 bytes at a time and work in tiles of 64 and more: with an odd number of
// columns of logits they fall back to far slower ones. The layout is the same on every device.
inline constexpr std::int64_t kVocabularyMultiple = 64;

// The rows of the matrix that one of `tensor` ranks holds in memory, with padding.
std::int64_t vocabulary_rows_in_memory(std::int64_t vocabulary, int tensor);

// The type of a loss's logits where `wanted` was asked for: fp32, but for bf16 in a model that
// computes in bf16.
DType type_of_logits(DType wanted, DType compute);

// What determines the slices of the loss. Equal on all tensor ranks, so their slices are too.
struct LossSizes {
  std::int64_t rows = 0;        // of a micro-batch, in the tensor-parallel part
  std::int64_t classes = 0;     // vocabulary_rows_in_memory
  DType compute = DType::kF32;  // the type of the logits' gradient
  std::int64_t gpu_memory = 0;  // ops::Context::gpu_memory; 0: on a CPU
  // type_of_logits. The gradient takes the place of the logits where both types are the same.
  DType logits = DType::kF32;
};

// The loss computes logits for slices of rows. Each slice reads the matrix twice and reads and
// writes its gradient once, so larger slices cost fewer passes over the matrix and more memory.
// Returns the rows of one slice, at least 1; the last slice may have fewer.
//   CPU: as many as keep a slice's logits, in fp32, within 32 MiB, near the caches; of more classes
//        up to 128 rows within 128 MiB: with 32 rows of 262,144 classes the passes over the matrix
//        take more time than the products.
//   GPU: at most 16,384. The weight gradient then does 2 x 16,384 FLOPs per element of the matrix,
//        for which 8 bytes move: sixteen times the 250 FLOPs or so that a GPU does in the time of
//        one byte. Fewer where the logits, with their gradient, would take more than a 32nd of the
//        GPU's memory (but 32 MiB are always granted). Slices are of about equal length, in
//        multiples of 64, and have fewer than 2^31 logits.
std::int64_t loss_slice_rows(const LossSizes& sizes);

// Returns the bytes of a slice's logits and of their gradient.
std::int64_t loss_slice_bytes(const LossSizes& sizes);

}  // namespace trireme::nn
