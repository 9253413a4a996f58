// The libraries that the operations are built on. For `trireme version`.
#pragma once

#include <string>
#include <vector>

#include "trireme/ops/context.h"

namespace trireme::ops {

// The libraries that are linked, whether or not this processor uses them: "oneDNN 2.6.3",
// "OpenMP 4.5" or "no OpenMP".
std::vector<std::string> library_versions();

// Why matrix products are computed by what matmul_description names.
std::string matmul_reason();

// Whether matrix products of bf16 run on bf16 instructions. Otherwise operands are stored in bf16
// and products are computed in fp32.
bool has_native_bf16(const Context& ctx);

}  // namespace trireme::ops
