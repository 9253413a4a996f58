#include "trireme/ops/split.h"

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

void check_halves(std::string_view op, const Tensor& high, const Tensor& low,
                  std::int64_t elements) {
  check_dtype(op, "high", high, {DType::kBF16});
  check_dtype(op, "low", low, {DType::kU16});
  check_elements(op, "high", high, elements);
  check_elements(op, "low", low, elements);
}

}  // namespace

void split(Context& ctx, const Tensor& x, const Tensor& high, const Tensor& low) {
  check_dtype("split", "x", x, {DType::kF32});
  check_halves("split", high, low, x.elements());
  dispatch(TRIREME_OP(split), ctx, x, high, low);
}

void join(Context& ctx, const Tensor& high, const Tensor& low, const Tensor& y) {
  check_dtype("join", "y", y, {DType::kF32});
  check_halves("join", high, low, y.elements());
  dispatch(TRIREME_OP(join), ctx, high, low, y);
}

}  // namespace trireme::ops
