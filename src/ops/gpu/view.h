// How kernels access tensors: as fp32, in chunks of eight elements, with 16-byte accesses where
// addresses allow.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "trireme/tensor/tensor.h"

#include "ops/gpu/device_code.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops::gpu {

inline constexpr int kChunk = 8;

// The elements, for use in kernels only. T must be the tensor's element type. Null if x is
// undefined.
template <class T>
T* device_data(const Tensor& x) {
  TRIREME_CHECK(!x.defined() || dtype_of<T>() == x.dtype(), "a tensor was read as another type");
  return static_cast<T*>(x.raw());
}

// An element type that is known only at run time: fp32, bf16 or fp16. For tensors that are much
// smaller than the others of a call, and for calls that mix types.
struct Any {};

__device__ inline float low_bf16(unsigned pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_bf16(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
// Rounded to nearest even, as BFloat16 does.
__device__ inline unsigned pack_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return word;
#else
  return BFloat16(low).bits | static_cast<unsigned>(BFloat16(high).bits) << 16;
#endif
}
// Rounded to nearest even, as Half does.
__device__ inline unsigned pack_fp16(float low, float high) {
#if defined(__CUDA_ARCH__)
  const __half2 pair = __floats2half2_rn(low, high);
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return word;
#else
  return Half(low).bits | static_cast<unsigned>(Half(high).bits) << 16;
#endif
}

// Two codes, rounded as E4M3 does, of values that are at most 448.
__device__ inline unsigned pack_e4m3(float low, float high) {
#if defined(__CUDA_ARCH__)
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
#else
  return E4M3(low).bits | static_cast<unsigned>(E4M3(high).bits) << 8;
#endif
}

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BFloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float to_float(Half x) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(x.bits));
#else
  return static_cast<float>(x);
#endif
}
__device__ inline void assign(float& to, float value) {
  to = value;
}
__device__ inline void assign(BFloat16& to, float value) {
  to.bits = static_cast<std::uint16_t>(pack_bf16(value, 0.0f));
}
__device__ inline void assign(Half& to, float value) {
  to.bits = static_cast<std::uint16_t>(pack_fp16(value, 0.0f));
}

// A chunk as it lies in memory, which takes fewer registers than its values.
template <class T>
struct RawChunk {
  uint4 words[kChunk * sizeof(T) / sizeof(uint4)] = {};
};
template <class T>
__device__ inline RawChunk<T> load_raw(const T* from) {
  RawChunk<T> raw;
#pragma unroll
  for (std::size_t i = 0; i < kChunk * sizeof(T) / sizeof(uint4); ++i) {
    raw.words[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return raw;
}
__device__ inline void unpack_fp16(unsigned pair, float& low, float& high) {
  Half half;
  half.bits = static_cast<std::uint16_t>(pair & 0xffffu);
  low = to_float(half);
  half.bits = static_cast<std::uint16_t>(pair >> 16);
  high = to_float(half);
}
__device__ inline void unpack(const RawChunk<float>& raw, float (&values)[kChunk]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    values[4 * i] = __uint_as_float(raw.words[i].x);
    values[4 * i + 1] = __uint_as_float(raw.words[i].y);
    values[4 * i + 2] = __uint_as_float(raw.words[i].z);
    values[4 * i + 3] = __uint_as_float(raw.words[i].w);
  }
}
__device__ inline void unpack(const RawChunk<BFloat16>& raw, float (&values)[kChunk]) {
  const uint4& words = raw.words[0];
  values[0] = low_bf16(words.x), values[1] = high_bf16(words.x);
  values[2] = low_bf16(words.y), values[3] = high_bf16(words.y);
  values[4] = low_bf16(words.z), values[5] = high_bf16(words.z);
  values[6] = low_bf16(words.w), values[7] = high_bf16(words.w);
}
__device__ inline void unpack(const RawChunk<Half>& raw, float (&values)[kChunk]) {
  const uint4& words = raw.words[0];
  unpack_fp16(words.x, values[0], values[1]);
  unpack_fp16(words.y, values[2], values[3]);
  unpack_fp16(words.z, values[4], values[5]);
  unpack_fp16(words.w, values[6], values[7]);
}
template <class T>
__device__ inline void load_vector(const T* from, float (&values)[kChunk]) {
  unpack(load_raw(from), values);
}
__device__ inline void store_vector(float* to, const float (&v)[kChunk]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ inline void store_vector(BFloat16* to, const float (&v)[kChunk]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                             pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}
__device__ inline void store_vector(Half* to, const float (&v)[kChunk]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_fp16(v[0], v[1]), pack_fp16(v[2], v[3]),
                                             pack_fp16(v[4], v[5]), pack_fp16(v[6], v[7]));
}

// Four elements, at an address that is a multiple of their size.
__device__ inline void load_four(const float* from, float (&v)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
}
__device__ inline void store_four(float* to, const float (&v)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
}
__device__ inline void store_four(BFloat16* to, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
}
__device__ inline void store_four(Half* to, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_fp16(v[0], v[1]), pack_fp16(v[2], v[3]));
}

// Two elements, at an address that is a multiple of their size.
__device__ inline void load_pair(const float* from, float (&v)[2]) {
  const float2 pair = *reinterpret_cast<const float2*>(from);
  v[0] = pair.x, v[1] = pair.y;
}
__device__ inline void load_pair(const BFloat16* from, float (&v)[2]) {
  const unsigned pair = *reinterpret_cast<const unsigned*>(from);
  v[0] = low_bf16(pair), v[1] = high_bf16(pair);
}
__device__ inline void load_pair(const Half* from, float (&v)[2]) {
  unpack_fp16(*reinterpret_cast<const unsigned*>(from), v[0], v[1]);
}
__device__ inline void store_pair(float* to, const float (&v)[2]) {
  *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
}
__device__ inline void store_pair(BFloat16* to, const float (&v)[2]) {
  *reinterpret_cast<unsigned*>(to) = pack_bf16(v[0], v[1]);
}
__device__ inline void store_pair(Half* to, const float (&v)[2]) {
  *reinterpret_cast<unsigned*>(to) = pack_fp16(v[0], v[1]);
}

// `vector`: the address is a multiple of 16 bytes whenever a whole chunk is left. Elements beyond
// `left` are read as 0 and are not written.
template <class T>
__device__ inline void load_chunk(const T* from, std::int64_t left, bool vector,
                                  float (&values)[kChunk]) {
  if (vector && left >= kChunk) return load_vector(from, values);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) values[i] = i < left ? to_float(from[i]) : 0.0f;
}
template <class T>
__device__ inline void store_chunk(T* to, std::int64_t left, bool vector,
                                   const float (&values)[kChunk]) {
  if (vector && left >= kChunk) return store_vector(to, values);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < left) assign(to[i], values[i]);
  }
}

// A tensor of element type T (or Any) in a kernel.
template <class T>
struct View {
  T* data = nullptr;

  View() = default;
  explicit View(const Tensor& x) : data(device_data<T>(x)) {}

  __device__ bool defined() const { return data != nullptr; }
  __device__ float at(std::int64_t i) const { return to_float(data[i]); }
  __device__ void set(std::int64_t i, float value) const { assign(data[i], value); }
  // The value as it would be read back after set().
  __device__ static float rounded(float value) {
    T element;
    assign(element, value);
    return to_float(element);
  }
  __device__ void load(std::int64_t i, std::int64_t left, bool vector,
                       float (&values)[kChunk]) const {
    load_chunk(data + i, left, vector, values);
  }
  __device__ void store(std::int64_t i, std::int64_t left, bool vector,
                        const float (&values)[kChunk]) const {
    store_chunk(data + i, left, vector, values);
  }
};

template <>
struct View<Any> {
  void* data = nullptr;
  DType type = DType::kF32;

  View() = default;
  explicit View(const Tensor& x) : data(x.raw()), type(x.dtype()) {}

  __device__ bool defined() const { return data != nullptr; }
  // Calls body with a pointer to the elements, of their type.
  template <class Body>
  __device__ void with_elements(const Body& body) const {
    if (type == DType::kF32) {
      body(static_cast<float*>(data));
    } else if (type == DType::kBF16) {
      body(static_cast<BFloat16*>(data));
    } else {
      body(static_cast<Half*>(data));
    }
  }
  // Both 2-byte types share one access: with three cases, attention would need too many registers.
  __device__ float at(std::int64_t i) const {
    if (type == DType::kF32) return static_cast<const float*>(data)[i];
    Half half;
    half.bits = static_cast<const std::uint16_t*>(data)[i];
    return type == DType::kBF16 ? low_bf16(half.bits) : to_float(half);
  }
  __device__ void set(std::int64_t i, float value) const {
    if (type == DType::kF32) {
      static_cast<float*>(data)[i] = value;
    } else {
      static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(
          type == DType::kBF16 ? pack_bf16(value, 0.0f) : pack_fp16(value, 0.0f));
    }
  }
  __device__ float rounded(float value) const {
    if (type == DType::kF32) return value;
    return type == DType::kBF16 ? View<BFloat16>::rounded(value) : View<Half>::rounded(value);
  }
  __device__ void load(std::int64_t i, std::int64_t left, bool vector,
                       float (&values)[kChunk]) const {
    with_elements([&](const auto* elements) { load_chunk(elements + i, left, vector, values); });
  }
  __device__ void store(std::int64_t i, std::int64_t left, bool vector,
                        const float (&values)[kChunk]) const {
    with_elements([&](auto* elements) { store_chunk(elements + i, left, vector, values); });
  }
};

// Whether the chunks of all these tensors, with rows of `columns` elements, begin at multiples of
// 16 bytes. Undefined tensors are ignored.
inline bool vectors_fit(std::initializer_list<const Tensor*> tensors, std::int64_t columns) {
  if (columns % kChunk != 0) return false;
  for (const Tensor* x : tensors) {
    if (reinterpret_cast<std::uintptr_t>(x->raw()) % 16 != 0) return false;
  }
  return true;
}

// Calls body(T()), where T is the element type of all tensors (float, BFloat16 or Half), or Any if
// their types differ.
template <class Body>
void with_type(std::initializer_list<const Tensor*> tensors, const Body& body) {
  const DType first = (*tensors.begin())->dtype();
  for (const Tensor* x : tensors) {
    if (x->dtype() != first) return body(Any());
  }
  if (first == DType::kF32) return body(float());
  if (first == DType::kBF16) return body(BFloat16());
  body(Half());
}

inline unsigned extent(std::int64_t n) {
  return static_cast<unsigned>(n);
}

// Work on rows in chunks of columns, by blocks of up to 256 threads: neighbours take neighbouring
// chunks of a row, at most 32, and a block takes kRowsAtOnce rows at a time, or more of them if
// they are shorter than 32 chunks. `most`: fewer chunks of a row than 32.
inline constexpr int kRowsAtOnce = 8;
inline constexpr int kMostLanes = 32;
inline unsigned chunk_lanes(std::int64_t columns, int most = kMostLanes) {
  return extent(std::clamp<std::int64_t>(blocks_for(columns, kChunk), 1, most));
}
inline dim3 chunk_block(std::int64_t columns, int most = kMostLanes) {
  const unsigned lanes = chunk_lanes(columns, most);
  return dim3(lanes, kRowsAtOnce * kMostLanes / lanes);
}
inline dim3 chunk_grid(std::int64_t rows, std::int64_t columns, int most = kMostLanes) {
  constexpr std::int64_t kMostRowBlocks = 4096;  // beyond that each block takes more rows
  const dim3 block = chunk_block(columns, most);
  const std::int64_t row_blocks = blocks_for(rows, block.y);
  return dim3(extent(blocks_for(columns, block.x * kChunk)),
              extent(row_blocks < kMostRowBlocks ? row_blocks : kMostRowBlocks));
}
__device__ inline std::int64_t chunk_column() {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kChunk;
}
// Calls body(row) for each row of the thread. Launched with chunk_grid and chunk_block.
template <class Body>
__device__ inline void for_chunk_rows(std::int64_t rows, const Body& body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
       row < rows; row += step) {
    body(row);
  }
}

// Calls body(row, column, left) for each chunk of the thread. `left` elements of the row are left
// from `column` on.
template <class Body>
__device__ inline void for_chunks(std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t column = chunk_column();
  const std::int64_t left = columns - column;
  if (left <= 0) return;
  for_chunk_rows(rows, [&](std::int64_t row) { body(row, column, left); });
}

}  // namespace trireme::ops::gpu
