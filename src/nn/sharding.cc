#include "trireme/nn/sharding.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/rounding.h"

namespace trireme::nn {

Sharding::Sharding(std::int64_t elements, int count, int index)
    : elements_(elements),
      count_(count),
      index_(index),
      each_(count == 1 ? elements : rounded_up(quotient_up(elements, count), kUnit)) {
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
  const std::int64_t units = quotient_up(elements, unit);
  const auto cut = [&](int i) { return std::min(elements, units * i / count * unit); };
  return {cut(index), cut(index + 1)};
}

}  // namespace trireme::nn
