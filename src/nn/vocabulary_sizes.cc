#include "trireme/nn/vocabulary_sizes.h"

#include <algorithm>

#include "trireme/base/rounding.h"

namespace trireme::nn {
namespace {

constexpr std::int64_t kSmallSlice = std::int64_t{32} << 20;   // bytes
constexpr std::int64_t kLargeSlice = std::int64_t{128} << 20;  // bytes
constexpr std::int64_t kFewRows = 128;
constexpr std::int64_t kMostRows = 4096;
constexpr std::int64_t kShareOfMemory = 32;
constexpr std::int64_t kRowMultiple = 64;

std::int64_t bytes_of_logit(const LossSizes& sizes) {
  constexpr std::int64_t kLogit = 4;  // fp32
  return sizes.compute == DType::kF32 ? kLogit
                                      : kLogit + static_cast<std::int64_t>(size_of(sizes.compute));
}

}  // namespace

std::int64_t vocabulary_rows_in_memory(std::int64_t vocabulary, int tensor) {
  return rounded_up(quotient_up(vocabulary, tensor), kVocabularyMultiple);
}

std::int64_t loss_slice_rows(const LossSizes& sizes) {
  if (sizes.gpu_memory == 0) {
    const std::int64_t row = sizes.classes * 4;  // bytes
    const std::int64_t most = std::max(kSmallSlice / row, std::min(kFewRows, kLargeSlice / row));
    return std::clamp<std::int64_t>(most, 1, sizes.rows);
  }
  const std::int64_t budget = std::max(kSmallSlice, sizes.gpu_memory / kShareOfMemory);
  std::int64_t most =
      std::clamp<std::int64_t>(budget / (sizes.classes * bytes_of_logit(sizes)), 1, kMostRows);
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
