#include "trireme/tensor/dtype.h"

#include "trireme/base/error.h"

namespace trireme {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kE4M3:
      return 1;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
  }
  throw InternalError("unknown dtype");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kF64:
      return "fp64";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kU16:
      return "uint16";
    case DType::kU8:
      return "uint8";
    case DType::kE4M3:
      return "e4m3";
  }
  throw InternalError("unknown dtype");
}

}  // namespace trireme
