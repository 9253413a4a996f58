#include "ops/cpu/kernels.h"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu {
namespace {

constexpr Kernels kBaseline = {"baseline x86-64",    baseline::kElementwise, baseline::kNorm,
                               baseline::kSoftmax,   baseline::kUpdate,      baseline::kAttention,
                               baseline::kBatchNorm, baseline::kPictures,    baseline::kProduct,
                               baseline::kQuantize};
constexpr Kernels kAvx2 = {"AVX2",         avx2::kElementwise, avx2::kNorm,      avx2::kSoftmax,
                           avx2::kUpdate,  avx2::kAttention,   avx2::kBatchNorm, avx2::kPictures,
                           avx2::kProduct, avx2::kQuantize};
constexpr Kernels kAvx512 = {"AVX-512",          avx512::kElementwise, avx512::kNorm,
                             avx512::kSoftmax,   avx512::kUpdate,      avx512::kAttention,
                             avx512::kBatchNorm, avx512::kPictures,    avx512::kProduct,
                             avx512::kQuantize};

// x86-64-v3 and -v4 as the psABI defines them, by the features that our loops can use.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

const Kernels& choose() {
  const char* asked = std::getenv("TRIREME_ISA");
  const std::string_view limit = asked == nullptr ? "avx512" : asked;
  if (limit != "baseline" && limit != "avx2" && limit != "avx512") {
    throw ConfigError(
        fmt::format("TRIREME_ISA is '{}'; it may be baseline, avx2 or avx512", shown(limit)));
  }
  if (limit == "baseline" || !has_avx2()) return kBaseline;
  if (limit == "avx2" || !has_avx512()) return kAvx2;
  return kAvx512;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace trireme::ops::cpu
