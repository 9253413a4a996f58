// Makes rates of the times.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/upper_median.h"
#include "trireme/topology/odd_cables.h"
#include "trireme/topology/probe.h"

namespace trireme {
namespace {

// Times the median deviation of the others (scaled as for a normal distribution): so much is noise.
constexpr double kNoise = 5.0 * 1.4826;

// The bytes that have arrived after `seconds`, between the steps in proportion.
double bytes_after(const ArrivalTimes& times, double seconds) {
  const auto next = std::ranges::upper_bound(times.seconds, seconds);
  const auto steps = next - times.seconds.begin();
  if (steps == 0) return 0.0;
  if (next == times.seconds.end()) return times.bytes * static_cast<double>(steps);
  const double before = *(next - 1);
  return times.bytes * (static_cast<double>(steps) + (seconds - before) / (*next - before));
}

// The least share of the usual that is not slow. The deviation is the lower one of the middle
// values: where half are slow, the others tell what is noise.
double limit_of(const std::vector<double>& shares) {
  const double middle = upper_median(shares);
  std::vector<double> deviations;
  for (const double share : shares) deviations.push_back(std::abs(share - middle));
  const auto noise = deviations.begin() + static_cast<std::ptrdiff_t>((deviations.size() - 1) / 2);
  std::nth_element(deviations.begin(), noise, deviations.end());
  return std::min(kSlowShare * middle, middle - kNoise * *noise);
}

// The fastest stream of each host in one direction.
struct Best {
  double share = 0.0;
  double rate = 0.0, usual = 0.0;  // bytes per second
  std::set<int> partners = {};
};
using Bests = std::map<int, Best>;

void add(Bests& bests, int host, int partner, const MeasuredStream& stream, double usual) {
  Best& best = bests[host];
  best.partners.insert(partner);
  if (stream.rate / usual > best.share) {
    best.share = stream.rate / usual;
    best.rate = stream.rate;
    best.usual = usual;
  }
}

// Returns the hosts that are slow in a direction. With one partner, either may be at fault.
std::set<int> slow_hosts(const Bests& bests) {
  std::vector<double> shares;
  for (const auto& [host, best] : bests) shares.push_back(best.share);
  if (shares.empty()) return {};
  const double limit = limit_of(shares);
  std::set<int> slow;
  for (const auto& [host, best] : bests) {
    if (best.share < limit && best.partners.size() > 1) slow.insert(host);
  }
  return slow;
}

}  // namespace

double stream_rate(const std::vector<ArrivalTimes>& receivers) {
  double begin = 0.0, end = std::numeric_limits<double>::infinity(), last = 0.0, bytes = 0.0;
  for (const ArrivalTimes& times : receivers) {
    begin = std::max(begin, times.seconds.front());
    end = std::min(end, times.seconds.back());
    last = std::max(last, times.seconds.back());
    bytes += times.bytes * static_cast<double>(times.seconds.size());
  }
  // If one has ended before another has begun, there is no time in which all are receiving.
  if (begin >= end) return bytes / last;
  double arrived = 0.0;
  for (const ArrivalTimes& times : receivers) {
    arrived += bytes_after(times, end) - bytes_after(times, begin);
  }
  return arrived / (end - begin);
}

std::vector<SlowLink> find_slow(const std::vector<MeasuredStream>& streams,
                                const std::vector<std::string>& names) {
  std::map<int, std::vector<double>> rates, shares;  // by distance
  for (const MeasuredStream& stream : streams) rates[stream.distance].push_back(stream.rate);
  std::map<int, double> usual_rates, limits;  // by distance
  for (const auto& [distance, all] : rates) usual_rates[distance] = upper_median(all);
  Bests senders, receivers;
  for (const MeasuredStream& stream : streams) {
    const double here = usual_rates[stream.distance];
    shares[stream.distance].push_back(stream.rate / here);
    add(senders, stream.from, stream.to, stream, here);
    add(receivers, stream.to, stream.from, stream, here);
  }
  for (const auto& [distance, all] : shares) limits[distance] = limit_of(all);
  const auto name = [&](int host) { return names.at(static_cast<std::size_t>(host)); };
  const std::set<int> slow_senders = slow_hosts(senders), slow_receivers = slow_hosts(receivers);
  std::vector<SlowLink> slow;
  for (const int host : slow_senders) {
    slow.push_back({host, -1, name(host) + " sends", senders[host].rate, senders[host].usual});
  }
  for (const int host : slow_receivers) {
    slow.push_back(
        {-1, host, name(host) + " receives", receivers[host].rate, receivers[host].usual});
  }
  std::set<std::pair<int, int>> told;
  for (const MeasuredStream& stream : streams) {
    const double here = usual_rates[stream.distance];
    if (stream.rate / here >= limits[stream.distance]) continue;
    if (slow_senders.contains(stream.from) || slow_receivers.contains(stream.to)) continue;
    if (!told.emplace(stream.from, stream.to).second) continue;
    slow.push_back({stream.from, stream.to,
                    fmt::format("{} to {}", name(stream.from), name(stream.to)), stream.rate,
                    here});
  }
  return slow;
}

}  // namespace trireme
