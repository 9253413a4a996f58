#include "trireme/base/shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

namespace trireme {

std::vector<int> shares_by_speed(int pieces, std::span<const double> speeds, int most) {
  const auto workers = static_cast<int>(speeds.size());
  TRIREME_CHECK(workers > 0 && pieces >= workers && pieces <= std::int64_t{most} * workers,
                "there is a piece for each worker, and a worker for each piece");
  const double sum = std::reduce(speeds.begin(), speeds.end());
  TRIREME_CHECK(std::isfinite(sum) && std::ranges::min(speeds) > 0, "speeds are above 0");
  const bool equal = std::ranges::all_of(speeds, [&](double s) { return s == speeds.front(); });
  if (equal) return even_shares(pieces, workers);
  // At that time all have together at most as many as there are, even where each has one at least.
  const double time = (pieces - workers) / sum;
  std::vector<int> shares;
  // When a worker would end with one more, and who.
  using Next = std::tuple<double, int>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](int worker) {
    const auto w = static_cast<std::size_t>(worker);
    if (shares[w] < most) next.emplace((shares[w] + 1) / speeds[w], -worker);
  };
  for (int worker = 0; worker < workers; ++worker) {
    const auto whole = static_cast<int>(time * speeds[static_cast<std::size_t>(worker)]);
    shares.push_back(std::clamp(whole, 1, most));
    offer(worker);
  }
  for (int left = pieces - std::reduce(shares.begin(), shares.end()); left > 0; --left) {
    const int worker = -std::get<1>(next.top());
    next.pop();
    ++shares[static_cast<std::size_t>(worker)];
    offer(worker);
  }
  return shares;
}

std::vector<int> shares_by_speed(int pieces, std::span<const double> speeds) {
  return shares_by_speed(pieces, speeds, pieces);
}

std::vector<int> even_shares(int pieces, int workers) {
  std::vector<int> shares;
  const auto begin = [&](int worker) { return std::int64_t{pieces} * worker / workers; };
  for (int worker = 0; worker < workers; ++worker) {
    shares.push_back(static_cast<int>(begin(worker + 1) - begin(worker)));
  }
  return shares;
}

double longest_share(std::span<const int> shares, std::span<const double> speeds) {
  double longest = 0.0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    longest = std::max(longest, shares[i] / speeds[i]);
  }
  return longest;
}

std::string shares_text(std::span<const int> shares) {
  constexpr std::size_t kMostNamed = 16;
  if (shares.size() <= kMostNamed) return fmt::format("{}", fmt::join(shares, ", "));
  const auto [least, most] = std::ranges::minmax(shares);
  return fmt::format("{} to {}", least, most);
}

}  // namespace trireme
