#include "trireme/config/batch_balance.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/limits.h"
#include "trireme/config/number_list.h"

namespace trireme {
namespace {

constexpr std::string_view kEvenly = "even", kByTimes = "auto";

}  // namespace

BatchBalance BatchBalance::by_speed(std::vector<double> speeds) {
  BatchBalance result;
  result.speeds_ = std::move(speeds);
  return result;
}

BatchBalance BatchBalance::automatic(std::vector<int> shares) {
  BatchBalance result;
  result.automatic_ = true;
  result.shares_ = std::move(shares);
  return result;
}

int BatchBalance::most_of_auto(int micro_batches, int replicas) {
  const std::int64_t twice = (2 * std::int64_t{micro_batches} + replicas - 1) / replicas;
  return static_cast<int>(std::min<std::int64_t>(twice, micro_batches - replicas + 1));
}

std::string read_value(std::string_view text, BatchBalance& value, const Limit& /*limit*/) {
  const std::string recorded = fmt::format("{} ", kByTimes);
  if (text == kEvenly || text == kByTimes) {
    value = text == kByTimes ? BatchBalance::automatic() : BatchBalance();
    return "";
  }
  if (text.starts_with(recorded)) {
    if (auto shares =
            numbers_in<int>(text.substr(recorded.size()), between(1, limits::kSequences))) {
      value = BatchBalance::automatic(*std::move(shares));
      return "";
    }
  }
  // Speeds may differ by what shares can tell apart, and no more.
  if (auto speeds = numbers_in<double>(text, between(1e-6, 1e6))) {
    value = BatchBalance::by_speed(*std::move(speeds));
    return "";
  }
  return "must be even, auto, or a speed from 1e-6 to 1e6 for each data replica, as in 1,0.5,0.5";
}

std::string write_value(const BatchBalance& value) {
  if (value.is_even()) return std::string(kEvenly);
  if (!value.is_auto()) {
    std::vector<std::string> texts;
    for (const double speed : value.speeds()) texts.push_back(write_value(speed));
    return fmt::format("{}", fmt::join(texts, ","));
  }
  if (value.shares().empty()) return std::string(kByTimes);
  return fmt::format("{} {}", kByTimes, fmt::join(value.shares(), ","));
}

}  // namespace trireme
