// The arithmetic of reductions, on one rank.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/comm/communicator.h"

namespace trireme {

// The type in which values are added: fp32 for bf16 and fp16, else the type itself.
DType accumulator_of(DType dtype);
// The type in which partial results travel: the accumulator's, or the type itself for kRoundedSum.
DType partial_type(ReduceOp op, DType dtype);

// Reduces the sources along T(sources.size()) (sum_tree.h) into `out`, in the
// accumulator of their type, and rounds once if `out_type` is narrower. A NaN anywhere gives a NaN.
// `out_type` is either `source_type`, or its accumulator, or the type whose accumulator it is. If
// both types are the same, `out` may be one of the sources.
void reduce_tree(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
                 DType out_type, std::byte* out, std::size_t count);
// The same, with `dtype` as source and output type.
void reduce_tree(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
                 std::byte* out, std::size_t count);

// Throws InternalError if a reduction of this type is not defined.
void check_reducible(DType dtype);

}  // namespace trireme
