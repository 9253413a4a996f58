// How the tensors of an operation are cut into chunks, each of which goes through a slot of memory
// that MPI takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/tensor/tensor.h"

#include "comm/device/device_staging.h"

namespace trireme {

inline constexpr std::size_t kSlotAlignment = 64;  // alignment of data in a slot

inline std::size_t slot_aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

// The positions of an operation's chunks in its tensors and in a slot.
class ChunkPlan {
 public:
  ChunkPlan(const std::vector<Part>& parts, std::size_t chunk_bytes, bool whole) {
    std::size_t widest = 1;  // bytes of one element of every strip, in the largest part
    for (const Part& part : parts) {
      const auto strips = static_cast<std::size_t>(part.strips);
      parts_.push_back(
          {static_cast<std::byte*>(part.tensor.raw()), part.tensor.dtype(), strips, part.use, 0});
      length_ = static_cast<std::size_t>(part.tensor.elements()) / strips;
      TRIREME_CHECK(length_ * strips == static_cast<std::size_t>(part.tensor.elements()) &&
                        length_ * static_cast<std::size_t>(parts.front().strips) ==
                            static_cast<std::size_t>(parts.front().tensor.elements()),
                    "the strips of an operation differ in length");
      widest = std::max(widest, strips * size_of(part.tensor.dtype()));
    }
    step_ = whole ? length_ : std::min(length_, std::max<std::size_t>(chunk_bytes / widest, 1));
    chunks_ = step_ == 0 ? 1 : (length_ + step_ - 1) / step_;
    for (Place& place : parts_) {
      place.offset = slot_bytes_;
      slot_bytes_ += slot_aligned(place.strips * step_ * size_of(place.dtype));
    }
  }

  std::size_t chunks() const { return chunks_; }
  std::size_t slots() const { return std::min(chunks_, kChunksInFlight); }
  std::size_t slot_bytes() const { return slot_bytes_; }

  // Returns the tensors that the host part gets for a chunk that lies at `slot`, memory of
  // `device`. They share its ownership.
  Tensors tensors(std::size_t chunk, const Buffer& slot, Device device) const {
    Tensors result;
    for (const Place& place : parts_) {
      const auto elements = static_cast<std::int64_t>(place.strips * count(chunk));
      result.push_back(
          Tensor::over(Buffer(slot, slot.get() + place.offset), device, {elements}, place.dtype));
    }
    return result;
  }
  // Calls copy(host, device, bytes) for the strips of a chunk, in all parts for which wanted(use)
  // is true.
  template <class Wanted, class Copy>
  void for_each_strip(std::size_t chunk, std::byte* slot, Wanted wanted, Copy copy) const {
    for (const Place& place : parts_) {
      if (!wanted(place.use) || length_ == 0) continue;
      const std::size_t element = size_of(place.dtype);
      const bool in_one = chunks_ == 1;
      const std::size_t bytes = count(chunk) * element * (in_one ? place.strips : 1);
      for (std::size_t strip = 0; strip < (in_one ? 1 : place.strips); ++strip) {
        copy(slot + place.offset + strip * bytes,
             place.device + (strip * length_ + chunk * step_) * element, bytes);
      }
    }
  }

 private:
  struct Place {
    std::byte* device;
    DType dtype;
    std::size_t strips;
    Part::Use use;
    std::size_t offset;  // in a slot
  };
  std::size_t count(std::size_t chunk) const {  // elements of a strip
    return std::min(step_, length_ - chunk * step_);
  }

  std::vector<Place> parts_;
  std::size_t length_ = 0;  // elements of a strip
  std::size_t step_ = 0;    // elements of a strip in a chunk
  std::size_t chunks_ = 1, slot_bytes_ = 0;
};

}  // namespace trireme
