// Argument checks shared by all operations. A mismatch is a fault of the program: InternalError.
#pragma once

#include <initializer_list>
#include <string_view>

#include "trireme/ops/context.h"

namespace trireme::ops {

struct BlockScaled;

// Each throws InternalError that names the operation and the argument.
void check_shape(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape);
void check_elements(std::string_view op, std::string_view name, const Tensor& x,
                    std::int64_t elements);
void check_rank(std::string_view op, std::string_view name, const Tensor& x, int rank);
void check_dtype(std::string_view op, std::string_view name, const Tensor& x,
                 std::initializer_list<DType> allowed);
// x is defined, and is fp32, bf16 or fp16.
void check_floating(std::string_view op, std::string_view name, const Tensor& x);
// x is fp32 of this shape, as gradients of weights, statistics and optimizer state are.
void check_fp32(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape);
// x is a matrix in e4m3 of whole blocks, with the scales that its blocks want.
void check_scaled(std::string_view op, std::string_view name, const BlockScaled& x);
// The context carries a StepState, which this operation reads.
void check_step_state(std::string_view op, const Context& ctx);

// The error of an operation on a device for which this build has no implementation.
InternalError no_device(std::string_view op, const Context& ctx);

}  // namespace trireme::ops
