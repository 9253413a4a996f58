// Products of small matrices by the tensor cores that GPUs have since Ampere: c (16 x 8, fp32) +=
// a (16 x 16) b (16 x 8), where a and b are bf16 or fp16. The lanes of a warp call these functions
// together, and each holds its part of a matrix in registers of two elements (PTX, "mma.m16n8k16"):
//
//   lane = 4 g + t    a: rows g and g + 8, columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9
//                     b: rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9, column g
//                     c: rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2 t and 2 t + 1
#pragma once

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

template <class T>
__device__ inline unsigned pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return pack_bf16(low, high);
  } else {
    return pack_fp16(low, high);
  }
}

template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif !defined(__CUDACC__)
  const unsigned b[2] = {b0, b1};
  emulator::multiply_add(c, a, b, [](std::uint16_t bits) {
    T element;
    element.bits = bits;
    return to_float(element);
  });
#endif
}

// Loads four matrices of 8 x 8 elements from shared memory. Lane 8 m + r brings the address of row
// r of matrix m, a multiple of 16 bytes. Lane 4 g + t gets elements 2 t and 2 t + 1 of row g of
// each matrix; transposed: of column g.
template <bool kTransposed>
__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
#if defined(__CUDA_ARCH__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  emulator::load_matrices(to, row, kTransposed);
#endif
}

// Rows of up to kDepth elements in shared memory. Eight rows that follow each other begin in
// different banks, so load_matrices has no conflicts.
template <int kDepth>
inline constexpr int kRowStride = kDepth + 8;

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x % 32);
}

// scores (16 x kColumns, in the layout of c, eight columns each) = the dot products of 16 rows of
// `mine` and kColumns rows of `others`, both in shared memory.
template <class T, int kDepth, int kColumns>
__device__ inline void dot_products(const T* mine, const T* others,
                                    float (&scores)[kColumns / 8][4]) {
  const int lane = lane_of_warp();
  const T* const my_row = mine + lane % 16 * kRowStride<kDepth> + lane / 16 * 8;
  const T* const other_row =
      others + (lane / 16 * 8 + lane % 8) * kRowStride<kDepth> + lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (float& score : scores[n]) score = 0.0f;
  }
  [[maybe_unused]] constexpr int kAtOnce =
      kDepth > 64 ? 4 : kDepth / 16;  // more of them spill registers
#pragma unroll kAtOnce
  for (int k = 0; k < kDepth; k += 16) {
    unsigned a[4];
    load_matrices<false>(a, my_row + k);
#pragma unroll
    for (int n = 0; n < kColumns; n += 16) {
      unsigned b[4];
      load_matrices<false>(b, other_row + n * kRowStride<kDepth> + k);
      multiply_add<T>(scores[n / 8], a, b[0], b[1]);
      multiply_add<T>(scores[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

// sums (16 x kDepth) += weights (16 x kRows, as dot_products leaves them, rounded to T) times kRows
// rows in shared memory.
template <class T, int kDepth, int kRows>
__device__ inline void add_weighted_rows(const float (&weights)[kRows / 8][4], const T* rows,
                                         float (&sums)[kDepth / 8][4]) {
  const int lane = lane_of_warp();
  const T* const row = rows + lane % 16 * kRowStride<kDepth> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
    const float(&left)[4] = weights[k / 8];
    const float(&right)[4] = weights[k / 8 + 1];
    const unsigned a[4] = {pack_pair<T>(left[0], left[1]), pack_pair<T>(left[2], left[3]),
                           pack_pair<T>(right[0], right[1]), pack_pair<T>(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < kDepth; n += 16) {
      unsigned b[4];
      load_matrices<true>(b, row + k * kRowStride<kDepth> + n);
      multiply_add<T>(sums[n / 8], a, b[0], b[1]);
      multiply_add<T>(sums[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace trireme::ops::gpu
