// CUDA's kernel language on the CPU: kernel sources are compiled as C++ and run block by block.
//
// Each thread of a block is a fiber. A barrier, shuffle or vote switches back to a scheduler, which
// resumes the threads when all that take part have arrived. Threads and blocks run in order, or in
// an order drawn from a seed, so that a missing barrier shows as a different result. Shared memory
// is filled with NaN before a block starts. It is on the heap, so that the address sanitizer sees
// accesses beyond it. Faults that depend on real warps (memory ordering within a warp, bank
// conflicts) do not show here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace trireme::emulator {

// A kernel broke a rule: not all threads reached a barrier, a shuffle read from a lane that takes
// no part in it, or the block used more shared memory than GPUs have.
class KernelError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Index3 {
  unsigned x, y, z;
};

}  // namespace trireme::emulator

// The names below are CUDA's.
// NOLINTBEGIN
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline double2 make_double2(double x, double y) {
  return {x, y};
}

// These belong to the running thread.
extern thread_local trireme::emulator::Index3 threadIdx;
extern thread_local trireme::emulator::Index3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

void __syncthreads();
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, int predicate);
int __any_sync(unsigned mask, int predicate);
int __all_sync(unsigned mask, int predicate);
unsigned __activemask();
unsigned __reduce_add_sync(unsigned mask, unsigned value);
unsigned __reduce_max_sync(unsigned mask, unsigned value);
unsigned __reduce_min_sync(unsigned mask, unsigned value);
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
inline unsigned __float_as_uint(float x) {
  return __builtin_bit_cast(unsigned, x);
}
inline float __uint_as_float(unsigned x) {
  return __builtin_bit_cast(float, x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
using std::fma;
using std::fmax;
using std::fmin;
using std::isfinite;

int atomicAdd(int* to, int value);
unsigned atomicAdd(unsigned* to, unsigned value);
int atomicMax(int* to, int value);
unsigned atomicInc(unsigned* to, unsigned most);
// NOLINTEND

namespace trireme::emulator {

// Waits for the other lanes of the mask. Returns the value that lane `source` of the warp brought.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int source);
int lane();

template <class T>
T shuffled(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = shuffle(mask, word, source);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

// Returns shared memory of the running block. The source line that declares an array identifies it.
void* shared_array(const char* file, int line, std::size_t bytes);
void* dynamic_shared();

// A copy to shared memory that a thread starts, and its wait for those that it has started. They
// are made at once, or, where an order is drawn, some of them only when they are waited for.
void start_copy(void* to, const void* from, std::size_t bytes);
void wait_for_copies();

// What the tensor cores of a warp do (ops/gpu/tensor_cores.h): all 32 lanes call these together.
// value: an element of a and b from its bits. Sums in fp32, in the order of the columns of a.
void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                  float (*value)(std::uint16_t));
void load_matrices(unsigned (&to)[4], const void* row, bool transposed);

// Sets the order of threads and blocks from now on, on this host thread. 0: in order; otherwise
// every launch draws an order from the seed.
void set_order(std::uint64_t seed);
// Returns the number of kernels that this host thread has run, for tests that check for a launch.
std::uint64_t launches();

// Sets, for the whole process and before the first launch, the function that gets launched kernels.
// Without it a launched kernel runs at once.
using Queue = std::function<void(void* stream, std::function<void()> kernel)>;
void set_queue(Queue queue);
void queue(void* stream, std::function<void()> kernel);

// Runs `thread` once for each thread of each block. Throws KernelError, or the exception that a
// thread has thrown.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

}  // namespace trireme::emulator

// NOLINTBEGIN
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = trireme::emulator::lane();
  return trireme::emulator::shuffled(mask, value, lane / width * width + source % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = trireme::emulator::lane();
  const int source = lane ^ lane_mask;
  return trireme::emulator::shuffled(mask, value, source / width > lane / width ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = trireme::emulator::lane();
  const int source = lane + static_cast<int>(delta);
  return trireme::emulator::shuffled(mask, value, source / width != lane / width ? lane : source);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = trireme::emulator::lane();
  const int source = lane - static_cast<int>(delta);
  const bool inside = source >= lane / width * width;
  return trireme::emulator::shuffled(mask, value, inside ? source : lane);
}
// NOLINTEND

#define TRIREME_SHARED(type, name, count) \
  type* const name = static_cast<type*>(  \
      ::trireme::emulator::shared_array(__FILE__, __LINE__, sizeof(type) * (count)))
#define TRIREME_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::trireme::emulator::dynamic_shared())
