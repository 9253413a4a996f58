#include "trireme/nn/sharding.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::nn {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Sharding::Sharding(std::int64_t elements, int count, int index)
    : elements_(elements),
      count_(count),
      index_(index),
      each_(count == 1 ? elements : ceil_div(ceil_div(elements, count), kUnit) * kUnit) {
  TRIREME_CHECK(elements >= 0 && index >= 0 && index < count,
                fmt::format("shard {} of {} of {} elements", index, count, elements));
}

std::vector<PartOfParameter> parts_in(const FlatRange& range, std::span<const std::int64_t> sizes) {
  std::vector<PartOfParameter> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const FlatRange here = intersection(range, {begin, begin + sizes[i]});
    if (!here.empty()) parts.push_back({i, {here.begin - begin, here.end - begin}});
    begin += sizes[i];
  }
  return parts;
}

FlatRange even_share(std::int64_t elements, int count, int index, std::int64_t unit) {
  const std::int64_t units = ceil_div(elements, unit);
  const auto cut = [&](int i) { return std::min(elements, units * i / count * unit); };
  return {cut(index), cut(index + 1)};
}

}  // namespace trireme::nn
