#include "trireme/tensor/tensor.h"

#include <utility>

#include <fmt/format.h>

namespace trireme {

Tensor Tensor::allocate(Allocator& allocator, const Stream& stream, const Shape& shape, DType dtype,
                        MemoryUse use) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  return over(allocator.allocate(bytes, use, stream), allocator.device(), shape, dtype);
}

Tensor Tensor::over(Buffer memory, Device device, const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  tensor.data_ = std::move(memory);
  return tensor;
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype) {
  return over(Buffer(Buffer(), static_cast<std::byte*>(data)), Device(), shape,
              dtype);  // owns nothing
}

Tensor Tensor::reshape(const Shape& shape) const {
  TRIREME_CHECK(shape.elements() == elements(),
                fmt::format("{} cannot be seen as {}", shape_.to_string(), shape.to_string()));
  return view(0, shape);
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  TRIREME_CHECK(shape_.rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0],
                fmt::format("rows {} to {} of {}", begin, end, shape_.to_string()));
  const std::int64_t row = shape_[0] == 0 ? 0 : elements() / shape_[0];
  return view(begin * row, shape_.with(0, end - begin));
}

Tensor Tensor::flat_range(std::int64_t begin, std::int64_t end) const {
  TRIREME_CHECK(0 <= begin && begin <= end && end <= elements(),
                fmt::format("elements {} to {} of {}", begin, end, shape_.to_string()));
  return view(begin, {end - begin});
}

Tensor Tensor::view(std::int64_t first_element, const Shape& shape) const {
  Tensor result = *this;
  result.shape_ = shape;
  result.data_ =
      Buffer(data_, data_.get() + static_cast<std::size_t>(first_element) * size_of(dtype_));
  return result;
}

}  // namespace trireme
