#include "trireme/comm/reduce.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/comm/sum_tree.h"

namespace trireme {
namespace {

// The number of elements reduced at a time. The accumulators of a few levels then fit in the L1
// cache.
constexpr std::size_t kBlock = 512;

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
// A NaN compares false with everything, including itself, so x != x keeps it.
struct Max {
  template <class A>
  static A combine(A a, A x) {
    return x > a || x != x ? x : a;  // NOLINT(misc-redundant-expression)
  }
};
struct Min {
  template <class A>
  static A combine(A a, A x) {
    return x < a || x != x ? x : a;  // NOLINT(misc-redundant-expression)
  }
};

// Adds the terms of T(p) one by one. Level l holds the result of 2^l neighbouring terms, or
// nothing. When a second result of that level is there, the two are combined into one of the next
// level.
template <class In, class Out, class Op>
void reduce(std::span<const std::byte* const> sources, std::byte* out, std::size_t count) {
  using Accumulator = typename AccumulatorOf<In>::Type;
  const SumTree tree(static_cast<int>(sources.size()));
  const auto levels = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(tree.terms())));
  const std::size_t block = std::min(kBlock, count);
  std::vector<Accumulator> memory(levels * block);
  const auto level = [&](std::size_t l) { return memory.data() + l * block; };
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t n = std::min(block, count - begin);
    const auto source = [&](int rank) {
      return reinterpret_cast<const In*>(sources[static_cast<std::size_t>(rank)]) + begin;
    };
    for (int term = 0; term < tree.terms(); ++term) {
      // Results wait on levels 0, 1, ..., `to` - 1. The new term is combined with them all and ends
      // on level `to`.
      const auto to = static_cast<std::size_t>(std::countr_one(static_cast<unsigned>(term)));
      Accumulator* value = level(to);
      const In* first = source(tree.first_rank_of(term));
      if (term < tree.pairs()) {
        const In* second = source(tree.first_rank_of(term) + 1);
        for (std::size_t i = 0; i < n; ++i) {
          value[i] =
              Op::combine(static_cast<Accumulator>(first[i]), static_cast<Accumulator>(second[i]));
        }
      } else {
        for (std::size_t i = 0; i < n; ++i) value[i] = static_cast<Accumulator>(first[i]);
      }
      for (std::size_t l = 0; l < to; ++l) {
        const Accumulator* left = level(l);
        for (std::size_t i = 0; i < n; ++i) value[i] = Op::combine(left[i], value[i]);
      }
    }
    const Accumulator* whole = level(levels - 1);
    Out* result = reinterpret_cast<Out*>(out) + begin;
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<Out>(whole[i]);
  }
}

template <class In, class Out = In>
void reduce_typed(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                  std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kRoundedSum:
      return reduce<In, Out, Sum>(sources, out, count);
    case ReduceOp::kMax:
      return reduce<In, Out, Max>(sources, out, count);
    case ReduceOp::kMin:
      return reduce<In, Out, Min>(sources, out, count);
  }
}

}  // namespace

void check_reducible(DType dtype) {
  TRIREME_CHECK(dtype != DType::kU16 && dtype != DType::kE4M3,
                std::string("no reduction is defined for ").append(name_of(dtype)));
}

DType accumulator_of(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

DType partial_type(ReduceOp op, DType dtype) {
  return op == ReduceOp::kRoundedSum ? dtype : accumulator_of(dtype);
}

void reduce_tree(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
                 std::byte* out, std::size_t count) {
  reduce_tree(op, dtype, sources, dtype, out, count);
}

void reduce_tree(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
                 DType out_type, std::byte* out, std::size_t count) {
  check_reducible(source_type);
  const bool narrows = out_type == DType::kBF16 || out_type == DType::kF16;
  TRIREME_CHECK(source_type == out_type || accumulator_of(source_type) == out_type ||
                    (source_type == DType::kF32 && narrows),
                fmt::format("a reduction of {} into {}", name_of(source_type), name_of(out_type)));
  const bool partial = out_type != source_type;
  switch (source_type) {
    case DType::kF32:
      if (out_type == DType::kBF16) return reduce_typed<float, BFloat16>(op, sources, out, count);
      if (out_type == DType::kF16) return reduce_typed<float, Half>(op, sources, out, count);
      return reduce_typed<float>(op, sources, out, count);
    case DType::kBF16:
      if (partial) return reduce_typed<BFloat16, float>(op, sources, out, count);
      return reduce_typed<BFloat16>(op, sources, out, count);
    case DType::kF16:
      if (partial) return reduce_typed<Half, float>(op, sources, out, count);
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
    case DType::kE4M3:
      break;
  }
}

}  // namespace trireme
