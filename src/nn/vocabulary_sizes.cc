#include "trireme/nn/vocabulary_sizes.h"

#include <algorithm>

#include "trireme/base/rounding.h"

namespace trireme::nn {
namespace {

constexpr std::int64_t kSmallSlice = std::int64_t{32} << 20;   // bytes
constexpr std::int64_t kLargeSlice = std::int64_t{128} << 20;  // bytes
constexpr std::int64_t kFewRows = 128;
constexpr std::int64_t kMostRows = 16384;
constexpr std::int64_t kMostLogits = (std::int64_t{1} << 31) - 1;  // libraries count in 32 bits
constexpr std::int64_t kShareOfMemory = 32;
constexpr std::int64_t kRowMultiple = 64;

std::int64_t bytes_of_logit(const LossSizes& sizes) {
  const auto logit = static_cast<std::int64_t>(size_of(sizes.logits));
  const bool in_place = sizes.compute == sizes.logits;
  return in_place ? logit : logit + static_cast<std::int64_t>(size_of(sizes.compute));
}

}  // namespace

std::int64_t vocabulary_rows_in_memory(std::int64_t vocabulary, int tensor) {
  return rounded_up(quotient_up(vocabulary, tensor), kVocabularyMultiple);
}

DType type_of_logits(DType wanted, DType compute) {
  return wanted == DType::kBF16 && compute == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

std::int64_t loss_slice_rows(const LossSizes& sizes) {
  if (sizes.gpu_memory == 0) {
    const std::int64_t row = sizes.classes * 4;  // bytes, whatever the type: the same slices
    const std::int64_t most = std::max(kSmallSlice / row, std::min(kFewRows, kLargeSlice / row));
    return std::clamp<std::int64_t>(most, 1, sizes.rows);
  }
  const std::int64_t budget = std::max(kSmallSlice, sizes.gpu_memory / kShareOfMemory);
  const std::int64_t most_rows =
      std::clamp<std::int64_t>(kMostLogits / sizes.classes, 1, kMostRows);
  std::int64_t most =
      std::clamp<std::int64_t>(budget / (sizes.classes * bytes_of_logit(sizes)), 1, most_rows);
  if (most >= sizes.rows) return sizes.rows;
  const std::int64_t multiple = most >= kRowMultiple ? kRowMultiple : 1;
  most = most / multiple * multiple;
  const std::int64_t slices = quotient_up(sizes.rows, most);
  return rounded_up(quotient_up(sizes.rows, slices), multiple);
}

std::int64_t loss_slice_bytes(const LossSizes& sizes) {
  return loss_slice_rows(sizes) * sizes.classes * bytes_of_logit(sizes);
}

}  // namespace trireme::nn
