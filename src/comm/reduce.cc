#include "reduce.h"

#include <algorithm>
#include <string>

namespace trireme {
namespace {

// Elements reduced at a time: the accumulators stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

template <class T>
struct AccumulatorOf {
  using Type = T;
};
template <>
struct AccumulatorOf<BFloat16> {
  using Type = float;
};
template <>
struct AccumulatorOf<Half> {
  using Type = float;
};

struct Sum {
  template <class A>
  static A combine(A a, A x) {
    return static_cast<A>(a + x);
  }
};
// A NaN compares false with everything, itself included: x != x lets it through.
struct Max {
  template <class A>
  static A combine(A a, A x) {
    return x > a || x != x ? x : a;
  }
};
struct Min {
  template <class A>
  static A combine(A a, A x) {
    return x < a || x != x ? x : a;
  }
};

template <class T, class Op>
void reduce(std::span<const std::byte* const> sources, std::byte* out, std::size_t count) {
  using Accumulator = typename AccumulatorOf<T>::Type;
  Accumulator sum[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<Accumulator>(first[i]);
    for (const std::byte* source : sources.subspan(1)) {
      const T* x = reinterpret_cast<const T*>(source) + begin;
      for (std::size_t i = 0; i < n; ++i) {
        sum[i] = Op::combine(sum[i], static_cast<Accumulator>(x[i]));
      }
    }
    T* result = reinterpret_cast<T*>(out) + begin;
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<T>(sum[i]);
  }
}

template <class T>
void reduce_typed(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                  std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce<T, Sum>(sources, out, count);
    case ReduceOp::kMax:
      return reduce<T, Max>(sources, out, count);
    case ReduceOp::kMin:
      return reduce<T, Min>(sources, out, count);
  }
}

}  // namespace

void check_reducible(DType dtype) {
  TRIREME_CHECK(dtype != DType::kU16,
                std::string("no reduction is defined for ").append(name_of(dtype)));
}

void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* out, std::size_t count) {
  check_reducible(dtype);
  switch (dtype) {
    case DType::kF32:
      return reduce_typed<float>(op, sources, out, count);
    case DType::kBF16:
      return reduce_typed<BFloat16>(op, sources, out, count);
    case DType::kF16:
      return reduce_typed<Half>(op, sources, out, count);
    case DType::kF64:
      return reduce_typed<double>(op, sources, out, count);
    case DType::kI32:
      return reduce_typed<std::int32_t>(op, sources, out, count);
    case DType::kI64:
      return reduce_typed<std::int64_t>(op, sources, out, count);
    case DType::kU8:
      return reduce_typed<std::uint8_t>(op, sources, out, count);
    case DType::kU16:
      break;
  }
}

}  // namespace trireme
