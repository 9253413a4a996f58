// What few bits make of numbers, in double: the plain reference of ops::quantize.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "trireme/nn/flat_group.h"
#include "trireme/nn/parameter.h"
#include "trireme/tensor/dtype.h"

namespace trireme::testing {

// v = the value of its code, and kept = what that loses, of one block: the elements from `begin` on
// to `end`.
inline void quantize_block(int bits, std::vector<double>& v, std::vector<double>& kept,
                           std::size_t begin, std::size_t end) {
  double largest = 0.0;
  for (std::size_t i = begin; i < end; ++i) {
    v[i] += kept[i];
    if (std::abs(v[i]) > std::abs(largest) || v[i] == std::abs(largest)) largest = v[i];
  }
  int exponent = 0;
  const double fraction = std::frexp(std::ldexp(largest, 1 - bits), &exponent);
  const double up = std::copysign(std::ceil(std::abs(fraction) * 256), fraction);
  const double scale = -std::ldexp(up, exponent - 8), top = std::ldexp(1.0, bits - 1) - 1;
  const auto inverse = scale == 0.0 ? 0.0f : static_cast<float>(1.0 / scale);
  for (std::size_t i = begin; i < end; ++i) {
    const auto v_in_fp32 = static_cast<float>(v[i]);
    const double code = std::nearbyint(static_cast<double>(v_in_fp32 * inverse));
    double value = std::min(code, top) * scale;
    if (bits == 16) value = static_cast<double>(static_cast<float>(BFloat16(v_in_fp32)));
    kept[i] = v[i] - value;
    v[i] = value;
  }
}

// The same of a group's memory: a block has elements of one parameter in 256 neighbours of it.
inline void quantize_group(const nn::FlatGroup& group, int bits, std::vector<double>& v,
                           std::vector<double>& kept) {
  for (const nn::Parameter* parameter : group.parameters()) {
    std::int64_t begin = parameter->offset_in_group();
    const std::int64_t end = begin + parameter->placement().local.elements();
    while (begin < end) {
      const std::int64_t next = std::min(end, (begin / 256 + 1) * 256);
      quantize_block(bits, v, kept, static_cast<std::size_t>(begin),
                     static_cast<std::size_t>(next));
      begin = next;
    }
  }
}

}  // namespace trireme::testing
