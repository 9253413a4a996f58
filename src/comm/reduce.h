// The arithmetic of reductions, on one rank.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/comm/communicator.h"

namespace trireme {

// Partial results have this type: fp32 for bf16 and fp16, else the type itself.
DType accumulator_of(DType dtype);

// out = the sources, reduced along T(sources.size()) (sum_tree.h) in the accumulator of their type,
// and rounded once if `out_type` is narrower. A NaN anywhere gives a NaN. `out_type` is
// `source_type`, its accumulator, or the type whose accumulator it is. Where both are the same,
// `out` may be one of the sources.
void reduce_tree(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
                 DType out_type, std::byte* out, std::size_t count);
// From a type to the same one.
void reduce_tree(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
                 std::byte* out, std::size_t count);

// Throws InternalError where a reduction of this type is not defined.
void check_reducible(DType dtype);

}  // namespace trireme
