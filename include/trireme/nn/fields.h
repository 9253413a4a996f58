// The named tensors of a micro-batch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/tensor/tensor.h"

namespace trireme::nn {

// The names that layers read. A family may have more. "rows": see MicroBatch.
inline constexpr std::string_view kTokens = "tokens";  // (rows) int32
// (rows) int32, ops::kMaskedTarget for no target. Readers check them against the number of classes.
inline constexpr std::string_view kTargets = "targets";
// (targets) int32: the row of each target, where only some rows have one: a masked language model
// predicts the tokens of these rows. Then kTargets has as many elements, and equally many for each
// sample.
inline constexpr std::string_view kTargetRows = "target_rows";
// (rows) int32: the first position that attention may read, counted in the sample (in generation:
// in the cache). Without this field it is position 0 for every row.
inline constexpr std::string_view kFirstKey = "first_key";
// (rows) int32: the end of the positions that attention may read, counted in the sample. Without
// this field attention reads to the end of the sample, or to the position itself if it is causal.
inline constexpr std::string_view kKeyEnd = "key_end";
inline constexpr std::string_view kPixels = "pixels";  // (batch, H, W, kColours) fp32
inline constexpr std::int64_t kColours = 3;            // red, green, blue

struct Field {
  std::string name;
  Tensor tensor;
};

// A few tensors by name, in the order in which they were added. Whoever reads, copies or captures
// micro-batches passes all of them on without knowing any name.
class Fields {
 public:
  // Adds a field, or gives the field of this name another tensor.
  void set(std::string_view name, Tensor tensor);
  // Returns the tensor of this name, undefined if there is none.
  Tensor find(std::string_view name) const;

  auto begin() { return fields_.begin(); }
  auto end() { return fields_.end(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<Field> fields_;
};

}  // namespace trireme::nn
