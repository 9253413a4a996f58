#include "trireme/ops/libraries.h"

#include <fmt/format.h>

#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

std::string openmp_version() {
#ifdef _OPENMP
  // _OPENMP is the year and month of the standard.
  constexpr int kMonth = _OPENMP;
  if (kMonth >= 201811) return "OpenMP 5.0";
  return kMonth >= 201511 ? "OpenMP 4.5" : fmt::format("OpenMP of {}", kMonth);
#else
  return "no OpenMP";
#endif
}

}  // namespace

std::vector<std::string> library_versions() {
  return {onednn_version(), openmp_version()};
}

bool has_native_bf16(const Context& ctx) {
  return ctx.matmul->is_native(DType::kBF16);
}

}  // namespace trireme::ops
