// How much memory a rank will need, before anything is built.
#pragma once

#include <cstdint>

#include "trireme/config/config.h"
#include "trireme/models/gpt.h"

namespace trireme {

// Bytes on one rank.
struct MemoryEstimate {
  double parameters = 0.0;   // fp32 master values, and weights of the compute type
  double gradients = 0.0;    // fp32
  double optimizer = 0.0;    // AdamW: two fp32 averages; SGD with momentum: one
  double activations = 0.0;  // of the live micro-batches, and workspace of the current one

  double total() const { return parameters + gradients + optimizer + activations; }
};

// Returns the estimate of the rank that needs most. R = batch.micro x context is the rows of a
// micro-batch, C the width, H the hidden width, H_up the width that the activation reads (H; 2 H
// with SwiGLU), K the width of keys, t the tensor ranks, s the bytes of the compute type, V' the
// vocabulary's rows on a rank (nn::vocabulary_rows_in_memory). Activations outside of the
// tensor-parallel regions have R' rows: R, or R / t under sequence parallelism.
//   elements of a layer   (C (2C + 2K) + C (H_up + H)) / t, plus biases and norms
//   of embedding, head    V' C each, once if both are tied and on one stage; learned
//                         positions context x C
//   bytes of an element   parameters 4, and 2 more in bf16 and fp16; gradients 4; AdamW 8
//   activations of a layer, for a micro-batch
//     s (4 R' C + R (2C + 2K) / t + R (H_up + H) / t); under sequence parallelism the norms'
//     outputs are kept as gathered, so 2 R' C + 2 R C in place of 4 R' C
//   of embedding, head    s R' C each; the head's rows and their gradient 2 s R C
// The activations are counted for each micro-batch that the pipeline schedule keeps on the stage
// at once (parallel::live_micro_batches). With recompute.mode full each of these micro-batches
// keeps s R' C for every recompute.every blocks (nothing for the model's first block), and the
// activations of the run of so many blocks that needs most, less its output, are counted once.
// With recompute.mode selective the norms' outputs are not kept (unless gathered), and neither is
// that of the activation (2 R' C and R H / t; on GPUs GELU's is kept), which the layer in its
// backward makes once.
// Added once (with recomputation: if that run has such a block): the gradients of the layer in its
// backward pass (3 s R C, 5 s R C under sequence parallelism, plus s R H_up / t) and the slice of
// logits (nn::loss_slice_bytes). `gpu_memory` decides how large that is: bytes as in
// ops::Context::gpu_memory, 0 on a CPU. Not included: kProcessBytes per rank for the program and
// its libraries, and the buffers of the collectives. (On GPUs, those of NCCL are known once the
// ranks are connected; the event `start` of a run records their size.)
MemoryEstimate estimate_memory(const Config& config, const models::GptConfig& model,
                               const GridShape& grid, std::int64_t gpu_memory);

// What a rank needs in addition: program, MPI, buffers. Measured on one and two ranks: 54 to 65 MiB
// (perf/RESULTS.md, memory of a rank: resident memory minus tensors).
inline constexpr double kProcessBytes = 128.0 * 1048576.0;

// Returns whole MiB, rounded up, and at most 1e15, so that any number of bytes fits 64 bits.
std::int64_t mib_of(double bytes);

}  // namespace trireme
