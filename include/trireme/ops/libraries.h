// What the operations are built on; for `trireme version`.
#pragma once

#include <string>
#include <vector>

#include "trireme/ops/context.h"

namespace trireme::ops {

// What is linked, whether or not this processor uses it: "oneDNN 2.6.3", "BLIS 0.9.0",
// "OpenMP 4.5" or "no OpenMP".
std::vector<std::string> library_versions();

// Why matrix products use the library that matmul_description names.
std::string matmul_reason();

// Whether products of bf16 run on bf16 instructions; otherwise bf16 is how they are stored, and
// fp32 how they are computed.
bool has_native_bf16(const Context& ctx);

}  // namespace trireme::ops
