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
  double activations = 0.0;  // of the live micro-batches, and of the one being computed

  double total() const { return parameters + gradients + optimizer + activations; }
};

// Of the rank that needs most. Let R = batch.micro x context rows of a micro-batch, C the width, H
// the hidden width (twice for what SwiGLU reads), K the width of keys, t tensor ranks, s bytes of
// the compute type, V the vocabulary; what passes between the tensor-parallel parts counts R' = R
// rows, R / t of them under sequence parallelism.
//   elements of a layer   (C (2C + 2K) + C (H_up + H)) / t, biases and norms
//   of the ends           V C / t, once where both are tied and on one stage; context x C
//   parameters            elements x (4, and 2 more in bf16 and fp16); gradients 4; AdamW 8
//   activations of a layer, a micro-batch
//     s (4 R' C + R (2C + 2K) / t + R (H_up + H) / t); under sequence parallelism the norms'
//     outputs are kept as gathered, so 2 R' C + 2 R C in place of 4 R' C
//   of the ends           s R' C each; the head's rows and their gradient 2 s R C
// The activations count as often as the pipeline schedule holds micro-batches at once on the stage
// (parallel::live_micro_batches). On top, once: the gradients of the layer under way (3 s R C,
// under sequence parallelism 5, and s R H_up / t) and the slice of logits (at most 32 MiB in fp32,
// half as much again in bf16 and fp16). Not in it: the program and its libraries, kProcessBytes a
// rank; buffers of the collectives.
MemoryEstimate estimate_memory(const Config& config, const models::GptConfig& model,
                               const GridShape& grid);

// What a rank holds besides: the program, MPI, buffers. On one and two ranks 54 to 65 MiB were seen
// (perf/RESULTS.md, memory of a rank: resident, less tensors).
inline constexpr double kProcessBytes = 128.0 * 1048576.0;

// Whole MiB, rounded up; bytes beyond 64 bits count as the most that is told.
std::int64_t mib_of(double bytes);

}  // namespace trireme
