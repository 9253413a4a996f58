#include "trireme/ops/quantize.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

void check_packed(std::string_view op, const Packing& packing, const Tensor& packed) {
  TRIREME_CHECK(packing.bits == 16 || packing.bits == 8 || packing.bits == 4 || packing.bits == 2,
                fmt::format("{}: codes of {} bits", op, packing.bits));
  TRIREME_CHECK(packing.elements >= 0 && packing.parts >= 1,
                fmt::format("{}: {} elements in {} parts", op, packing.elements, packing.parts));
  check_dtype(op, "packed", packed, {DType::kU8});
  check_elements(op, "packed", packed, packing.bytes());
  TRIREME_CHECK(reinterpret_cast<std::uintptr_t>(packed.raw()) % 8 == 0,
                fmt::format("{}: packed is not at a multiple of 8 bytes", op));
}

}  // namespace

void quantize(Context& ctx, const Packing& packing, const Tensor& x, const Tensor& error,
              const Tensor& packed) {
  check_dtype("quantize", "x", x, {DType::kF32});
  check_elements("quantize", "x", x, packing.elements);
  if (error.defined()) check_fp32("quantize", "error", error, x.shape());
  check_packed("quantize", packing, packed);
  if (packing.elements == 0) return;
  dispatch(TRIREME_OP(quantize), ctx, packing, x, error, packed);
}

void dequantize(Context& ctx, const Packing& packing, const Tensor& packed, const Tensor& y) {
  check_packed("dequantize", packing, packed);
  check_dtype("dequantize", "y", y, {DType::kF32});
  check_elements("dequantize", "y", y, packing.elements);
  if (packing.elements == 0) return;
  dispatch(TRIREME_OP(dequantize), ctx, packing, packed, y);
}

}  // namespace trireme::ops
