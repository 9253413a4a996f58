#include "trireme/topology/measured_ratios.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/topology/planner.h"

namespace trireme {
namespace {

constexpr double kMostCorrection = 8.0;

// The logarithms of ratios, by the logarithm of the size.
using RatioCurve = std::map<double, double>;

// Returns nothing for sizes that were not measured with this algorithm: what is true of small
// messages need not be so of larger ones.
std::optional<double> ratio_at(const RatioCurve& curve, double size) {
  const auto above = curve.lower_bound(size);
  if (above == curve.end()) return {};
  if (above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = (size - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace

std::vector<MeasuredRatio> ratios_of(const StoredRates& stored) {
  std::vector<MeasuredRatio> ratios;
  std::map<int, std::unique_ptr<PredictedNetwork>> networks;  // by the number of ranks
  for (const MeasuredCollective& one : stored.collectives) {
    const int hosts = static_cast<int>(stored.hosts.size());
    const auto algorithm = algorithm_named(one.algorithm);
    if (!algorithm || one.ranks < 2 || one.ranks % hosts != 0 || one.seconds <= 0.0) continue;
    std::unique_ptr<PredictedNetwork>& network = networks[one.ranks];
    if (!network) {
      std::vector<std::string> host_of;
      for (int rank = 0; rank < one.ranks; ++rank) {
        host_of.push_back(stored.hosts[static_cast<std::size_t>(rank / (one.ranks / hosts))]);
      }
      network = std::make_unique<PredictedNetwork>(blocks_of_ranks(stored, host_of), stored.rates);
    }
    const auto predicted = predict(network->predictor, one.collective, *algorithm, one.bytes);
    if (!predicted || predicted->seconds <= 0.0) continue;
    ratios.push_back({one.collective, *algorithm, one.bytes, one.ranks,
                      one.seconds / predicted->seconds, network->predictor.partials()});
  }
  return ratios;
}

double correction(const std::vector<MeasuredRatio>& ratios, Collective collective,
                  Algorithm algorithm, std::size_t bytes, int ranks, int partials) {
  const bool reduces =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  std::map<Algorithm, RatioCurve> curves;
  for (const MeasuredRatio& one : ratios) {
    if (one.collective != collective || one.ranks != ranks) continue;
    if (reduces && one.algorithm == Algorithm::kTiered && one.partials != partials) continue;
    curves[one.algorithm].emplace(
        std::log(static_cast<double>(std::max<std::size_t>(one.bytes, 1))), std::log(one.ratio));
  }
  if (curves.empty()) return 1.0;
  double size = std::log(static_cast<double>(std::max<std::size_t>(bytes, 1)));
  // The largest size that was measured stands for all larger ones.
  double largest = 0.0;
  for (const auto& [measured, curve] : curves) largest = std::max(largest, curve.rbegin()->first);
  size = std::min(size, largest);
  std::vector<double> all;
  std::optional<double> own;
  for (const auto& [measured, curve] : curves) {
    const auto ratio = ratio_at(curve, size);
    if (ratio) all.push_back(*ratio);
    if (measured == algorithm) own = ratio;
  }
  std::ranges::sort(all);
  const double result = own.value_or(all[all.size() / 2]);
  return std::clamp(std::exp(result), 1.0 / kMostCorrection, kMostCorrection);
}

}  // namespace trireme
