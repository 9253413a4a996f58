#include "trireme/comm/islands.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

Islands::Islands(RankRuntime& runtime, const GridShape& of_each, int count, std::vector<int> order)
    : count_(count) {
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(runtime.size()));
    std::iota(order.begin(), order.end(), 0);
  }
  const auto each = of_each.ranks();
  TRIREME_CHECK(count > 0 && std::ssize(order) == std::ptrdiff_t{each} * count,
                fmt::format("{} islands of {} ranks over {}", count, each, order.size()));
  const auto here = std::ranges::find(order, runtime.rank());
  TRIREME_CHECK(here != order.end(), fmt::format("rank {} is on no island", runtime.rank()));
  const auto place = static_cast<int>(here - order.begin());
  index_ = place / each;
  const auto first = order.begin() + std::ptrdiff_t{index_} * each;
  ranks_.assign(first, first + each);
  std::vector<int> same_place;
  for (int island = 0; island < count; ++island) {
    same_place.push_back(order[static_cast<std::size_t>(island * each + place % each)]);
  }
  across_ = runtime.group({"islands", {}, Purpose::kMeetings}, same_place);
}

}  // namespace trireme
