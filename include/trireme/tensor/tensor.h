// A dense array: shape, element type, device, and a view of a shared block of memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shape.h"
#include "trireme/tensor/allocator.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// Contiguous and row-major. Copying a Tensor shares its memory. A default-constructed Tensor is
// empty: it has no memory and !defined().
class Tensor {
 public:
  Tensor() = default;

  // Contents undefined. Throws OutOfMemoryError.
  static Tensor allocate(Allocator& allocator, const Stream& stream, const Shape& shape,
                         DType dtype, MemoryUse use);

  // A tensor over existing memory of `device`, whose ownership it shares.
  static Tensor over(Buffer memory, Device device, const Shape& shape, DType dtype);

  // A view of host memory that the caller keeps alive and valid.
  static Tensor wrap(void* data, const Shape& shape, DType dtype);
  template <class T>
  static Tensor wrap(std::span<T> values) {
    return wrap(values.data(), {static_cast<std::int64_t>(values.size())}, dtype_of<T>());
  }

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  void* raw() const { return data_.get(); }
  // Whether another tensor shares the memory. If not, the holder may overwrite it.
  bool shared() const { return data_.use_count() > 1; }

  // The elements of a tensor on the host; T must be the tensor's element type.
  template <class T>
  T* data() const {
    TRIREME_CHECK(device_.kind == DeviceKind::kCpu,
                  "a tensor on " + device_.to_string() + " was read by the host");
    return address<T>();
  }
  // The address of the elements on any device: for kernels and libraries.
  template <class T>
  T* address() const {
    TRIREME_CHECK(dtype_of<T>() == dtype_, "a tensor was read as another element type");
    return reinterpret_cast<T*>(data_.get());
  }
  // The elements, to be read or written by the caller, so the memory must not be dry.
  template <class T>
  std::span<T> span() const {
    TRIREME_CHECK(!is_dry(raw()), "the elements of a dry tensor were asked for");
    return {data<T>(), static_cast<std::size_t>(elements())};
  }

  // Calls record_use for its memory; see allocator.h.
  void record_use(const Stream& stream) const { trireme::record_use(data_, stream); }

  // Views of the same memory.
  Tensor reshape(const Shape& shape) const;                       // the same number of elements
  Tensor rows(std::int64_t begin, std::int64_t end) const;        // a range of the first dimension
  Tensor flat_range(std::int64_t begin, std::int64_t end) const;  // (end - begin), of all elements

 private:
  Tensor view(std::int64_t first_element, const Shape& shape) const;

  Shape shape_;
  DType dtype_ = DType::kF32;
  Device device_;
  Buffer data_;  // points at the first element; shares ownership of the whole block
};

// A tuple of tensors that is passed between blocks and pipeline stages.
using Tensors = std::vector<Tensor>;

}  // namespace trireme
