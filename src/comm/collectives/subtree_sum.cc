#include "comm/collectives/subtree_sum.h"

#include <algorithm>
#include <array>

namespace trireme {

std::size_t end_of(const Subtree& subtree, std::span<const SubtreeValue> values,
                   std::size_t first) {
  const long end =
      subtree.level < 0 ? subtree.order() + 1 : 2L * ((long{subtree.index} + 1) << subtree.level);
  while (first < values.size() && values[first].subtree.order() < end) ++first;
  return first;
}

// Whether one pass over all values adds them as the subtree demands.
bool SubtreeSum::is_one_pass(std::span<const SubtreeValue> values) const {
  const SubtreeValue& first = values.front();
  const bool same_type = std::ranges::all_of(
      values, [&](const SubtreeValue& value) { return value.type == first.type; });
  const bool singles = std::ranges::all_of(
      values, [&](const SubtreeValue& value) { return value.subtree.is_single(tree_); });
  const bool same_level = std::ranges::all_of(values, [&](const SubtreeValue& value) {
    return value.subtree.level == first.subtree.level;
  });
  return same_type && (singles || same_level);
}

void SubtreeSum::evaluate(const Subtree& subtree, std::span<const SubtreeValue> values,
                          std::byte* out, DType out_type, std::size_t count, std::size_t depth) {
  if (values.size() == 1 && values[0].type == out_type) {
    if (values[0].data != out) transport_.copy(out, values[0].data, count * size_of(out_type));
    return;
  }
  if (is_one_pass(values)) {
    std::vector<const std::byte*> data;
    for (const SubtreeValue& value : values) data.push_back(value.data);
    transport_.reduce(op_, values[0].type, data, out_type, out, count);
    return;
  }
  const Subtree left = subtree.left(tree_), right = subtree.right(tree_);
  const std::size_t middle = end_of(left, values, 0);
  const std::array<const std::byte*, 2> halves{
      half(left, values.first(middle), count, depth, 2 * depth),
      half(right, values.subspan(middle), count, depth, 2 * depth + 1)};
  transport_.reduce(op_, partial_type_, halves, out_type, out, count);
}

const std::byte* SubtreeSum::half(const Subtree& subtree, std::span<const SubtreeValue> values,
                                  std::size_t count, std::size_t depth, std::size_t number) {
  if (values.size() == 1 && values[0].type == partial_type_) return values[0].data;
  if (scratch_.size() <= number) scratch_.resize(number + 1);
  auto& [buffer, bytes] = scratch_[number];
  if (bytes < count * size_of(partial_type_)) {
    bytes = count * size_of(partial_type_);
    buffer = transport_.workspace(bytes);
  }
  std::byte* const out = buffer.get();
  evaluate(subtree, values, out, partial_type_, count, depth + 1);
  return out;
}

}  // namespace trireme
