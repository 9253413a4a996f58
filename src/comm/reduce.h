// The arithmetic of reductions, on one rank.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/comm/communicator.h"

namespace trireme {

// out[i] = sources[0][i] op sources[1][i] op ..., in that order: in fp32 for bf16 and fp16,
// rounded once, and in the own type otherwise. A NaN anywhere gives a NaN. `out` may be one of the
// sources.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* out, std::size_t count);

// Throws InternalError where a reduction of this type is not defined.
void check_reducible(DType dtype);

}  // namespace trireme
