// Conversions between fp32 and the types of 16 bits on the host.
#pragma once

#include <span>

#include "trireme/tensor/tensor.h"

namespace trireme {

// `narrow` is on the host, of fp32, bf16 or fp16, and has as many elements as `values`, in its
// row-major order.
void widen(const Tensor& narrow, std::span<float> values);
// Rounds the values to the tensor's type. Returns whether one of them is another value now.
bool round_to(std::span<const float> values, const Tensor& narrow);

// The halves of SplitFloats: `high` is on the host, of bf16, and all have as many elements.
void split_to(std::span<const float> values, const Tensor& high, std::span<std::uint16_t> low);
void join_from(const Tensor& high, std::span<const std::uint16_t> low, std::span<float> values);

}  // namespace trireme
