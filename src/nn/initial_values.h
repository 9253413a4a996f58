// Initial values of parameters, which a rank fills in range by range.
#pragma once

#include <cstdint>

#include "trireme/nn/parameter.h"

namespace trireme::nn {

// Fills `to` with the initial values of elements `range` of the parameter's local memory, on all
// threads of the rank; padding becomes zero. Every element depends on seed, name and global index
// alone, so any division into ranges gives the same values. Dry memory gets none. Returns the
// number of draws. The host holds one range of a GPU's values at a time.
std::int64_t draw_initial_values(ops::Context& ctx, const Parameter& parameter,
                                 const FlatRange& range, std::uint64_t seed, const Tensor& to);

}  // namespace trireme::nn
