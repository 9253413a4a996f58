#include "trireme/train/share_balance.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/shares.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

std::vector<double> speeds_of(std::vector<double> seconds) {
  for (double& value : seconds) value = 1.0 / value;
  return seconds;
}

}  // namespace

void ShareBalance::look(const RankTable& table) {
  Window window;
  for (const RankTimes& rank : table.ranks) {
    const auto replica = static_cast<std::size_t>(rank.place[dimension_with(kDataAxes)]);
    if (window.seconds.size() <= replica) {
      window.seconds.resize(replica + 1, 0.0);
      window.shares.resize(replica + 1, 0);
    }
    window.seconds[replica] =
        std::max(window.seconds[replica], rank.own_seconds() / rank.micro_batches);
    window.shares[replica] = rank.micro_batches;
    const bool first = &rank == &table.ranks.front();
    window.others = first ? rank.comm_seconds : std::min(window.others, rank.comm_seconds);
  }
  // A replica that took no time that can be measured tells nothing.
  if (std::ranges::min(window.seconds) <= 0.0) return windows_.clear();
  windows_.push_back(std::move(window));
  if (windows_.size() > kWindows) windows_.pop_front();
}

double ShareBalance::step_seconds(const Window& window, const std::vector<int>& shares) {
  return longest_share(shares, speeds_of(window.seconds)) + window.others;
}

ShareBalance::Window ShareBalance::mean() const {
  Window sum = windows_.back();
  for (std::size_t w = 0; w + 1 < windows_.size(); ++w) {
    for (std::size_t i = 0; i < sum.seconds.size(); ++i) sum.seconds[i] += windows_[w].seconds[i];
    sum.others += windows_[w].others;
  }
  const auto count = static_cast<double>(windows_.size());
  for (double& seconds : sum.seconds) seconds /= count;
  sum.others /= count;
  return sum;
}

std::optional<ShareBalance::Change> ShareBalance::change() const {
  if (windows_.size() < kWindows) return {};
  const Window window = mean();
  const int micro_batches = std::reduce(window.shares.begin(), window.shares.end());
  const std::vector<int> shares = shares_by_speed(micro_batches, speeds_of(window.seconds), most_);
  const auto gains = [&](const Window& one) {
    return step_seconds(one, shares) <= (1 - kGain) * step_seconds(one, one.shares);
  };
  if (!std::ranges::all_of(windows_, gains)) return {};
  const auto [fastest, slowest] = std::ranges::minmax(window.seconds);
  return Change{shares,
                fmt::format("batch.balance: shares of {} micro-batches in place of {}: a "
                            "micro-batch takes {} to {}, so a step of about {} becomes one "
                            "of {}",
                            shares_text(shares), shares_text(window.shares), time_text(fastest),
                            time_text(slowest), time_text(step_seconds(window, window.shares)),
                            time_text(step_seconds(window, shares)))};
}

}  // namespace trireme
