#include "trireme/topology/measured_errors.h"

#include <algorithm>
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

// Seconds by bytes.
using ErrorCurve = std::map<double, double>;

// Returns nothing for sizes that were not measured with this algorithm: what is true of small
// messages need not be so of larger ones, nor the other way around.
std::optional<double> error_at(const ErrorCurve& curve, double bytes) {
  const auto above = curve.lower_bound(bytes);
  if (above == curve.end() || bytes < curve.begin()->first) return {};
  if (above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = (bytes - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace

std::vector<MeasuredError> errors_of(const StoredRates& stored) {
  std::vector<MeasuredError> errors;
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
    if (!predicted) continue;
    errors.push_back({one.collective, *algorithm, one.bytes, one.ranks,
                      one.seconds - predicted->seconds, network->predictor.partials()});
  }
  return errors;
}

double corrected(double predicted, const std::vector<MeasuredError>& errors, Collective collective,
                 Algorithm algorithm, std::size_t bytes, int ranks, int partials) {
  const bool reduces =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  std::map<Algorithm, ErrorCurve> curves;
  for (const MeasuredError& one : errors) {
    if (one.collective != collective || one.ranks != ranks) continue;
    if (reduces && one.algorithm == Algorithm::kTiered && one.partials != partials) continue;
    curves[one.algorithm].emplace(static_cast<double>(std::max<std::size_t>(one.bytes, 1)),
                                  one.seconds);
  }
  if (curves.empty()) return predicted;
  double smallest = curves.begin()->second.begin()->first, largest = 0.0;  // that were measured
  for (const auto& [measured, curve] : curves) {
    smallest = std::min(smallest, curve.begin()->first);
    largest = std::max(largest, curve.rbegin()->first);
  }
  const double size = std::clamp(static_cast<double>(bytes), smallest, largest);
  std::vector<double> all;
  std::optional<double> own;
  for (const auto& [measured, curve] : curves) {
    const auto error = error_at(curve, size);
    if (error) all.push_back(*error);
    if (measured == algorithm) own = error;
  }
  std::ranges::sort(all);
  const double beyond = std::max(static_cast<double>(bytes) / largest, 1.0);
  const double error = own.value_or(all[all.size() / 2]) * beyond;
  return std::clamp(predicted + error, predicted / kMostCorrection, predicted * kMostCorrection);
}

}  // namespace trireme
