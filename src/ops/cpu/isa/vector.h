// Vectors of the widest registers, for loops that keep several of them over many steps.
#pragma once

#include <cstdint>

#include "ops/cpu/isa/simd_math.h"

namespace trireme::ops::cpu::TRIREME_ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vector __attribute__((vector_size(kWidth * sizeof(float)), aligned(4), may_alias));

TRIREME_INLINE Vector load(const float* from) {
  return *reinterpret_cast<const Vector*>(from);
}
TRIREME_INLINE void store(float* to, Vector value) {
  *reinterpret_cast<Vector*>(to) = value;
}

}  // namespace trireme::ops::cpu::TRIREME_ISA
