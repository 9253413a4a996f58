#include "ops/check.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/ops/block_scaled.h"

namespace trireme::ops {
namespace {

void check_defined(std::string_view op, std::string_view name, const Tensor& x) {
  TRIREME_CHECK(x.defined(), fmt::format("{}: {} is undefined", op, name));
}

}  // namespace

void check_shape(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape) {
  check_defined(op, name, x);
  TRIREME_CHECK(x.shape() == shape, fmt::format("{}: {} is {}, not {}", op, name,
                                                x.shape().to_string(), shape.to_string()));
}

void check_elements(std::string_view op, std::string_view name, const Tensor& x,
                    std::int64_t elements) {
  check_defined(op, name, x);
  TRIREME_CHECK(x.elements() == elements, fmt::format("{}: {} is {}, not of {} elements", op, name,
                                                      x.shape().to_string(), elements));
}

void check_rank(std::string_view op, std::string_view name, const Tensor& x, int rank) {
  check_defined(op, name, x);
  TRIREME_CHECK(x.shape().rank() == rank, fmt::format("{}: {} is {}, not of {} dimensions", op,
                                                      name, x.shape().to_string(), rank));
}

void check_dtype(std::string_view op, std::string_view name, const Tensor& x,
                 std::initializer_list<DType> allowed) {
  check_defined(op, name, x);
  if (std::find(allowed.begin(), allowed.end(), x.dtype()) != allowed.end()) return;
  std::string choices;
  for (const DType dtype : allowed) {
    choices += fmt::format("{}{}", choices.empty() ? "" : " or ", name_of(dtype));
  }
  throw InternalError(fmt::format("{}: {} is {}, not {}", op, name, name_of(x.dtype()), choices));
}

void check_floating(std::string_view op, std::string_view name, const Tensor& x) {
  check_dtype(op, name, x, {DType::kF32, DType::kBF16, DType::kF16});
}

void check_fp32(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape) {
  check_dtype(op, name, x, {DType::kF32});
  check_shape(op, name, x, shape);
}

void check_scaled(std::string_view op, std::string_view name, const BlockScaled& x) {
  check_dtype(op, name, x.codes, {DType::kE4M3});
  check_rank(op, name, x.codes, 2);
  const std::int64_t rows = x.codes.shape()[0], columns = x.codes.shape()[1];
  TRIREME_CHECK(has_whole_blocks(rows, columns),
                fmt::format("{}: {} is {}, without whole blocks of {}", op, name,
                            x.codes.shape().to_string(), kScaledSide));
  check_fp32(op, fmt::format("{}'s scales", name), x.scales,
             BlockScaled::shape_of_scales(x.blocks, rows, columns));
}

void check_step_state(std::string_view op, const Context& ctx) {
  TRIREME_CHECK(ctx.step_state != nullptr, fmt::format("{}: the context has no StepState", op));
}

InternalError no_device(std::string_view op, const Context& ctx) {
  return InternalError(
      fmt::format("{} has no implementation for {} in this build", op, ctx.device.to_string()));
}

}  // namespace trireme::ops
