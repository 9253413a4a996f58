// How fast nodes compute, and what an allocation of unequal ones loses.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/shares.h"
#include "trireme/base/usual_threads.h"
#include "trireme/doctor/doctor.h"
#include "trireme/ops/measured_speed.h"

namespace trireme {
namespace {

constexpr double kSlowNode = 0.8;  // of the fastest node's speed
constexpr int kMicroBatches = 8;   // of each node, of which shares are made

// The part of all nodes' speed that is not used, where each has so many micro-batches.
double lost(const std::vector<int>& shares, const std::vector<double>& speeds) {
  double work = 0.0, speed = 0.0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    work += shares[i];
    speed += speeds[i];
  }
  return 1.0 - work / longest_share(shares, speeds) / speed;
}

}  // namespace

double measure_products() {
  ops::Context ctx = ops::make_cpu_context(usual_threads());
  return ops::measured_speed(ctx);
}

void compare_speeds(std::vector<NodeFindings>& nodes) {
  std::vector<double> speeds;
  for (const NodeFindings& node : nodes) speeds.push_back(node.products_per_second);
  if (speeds.size() < 2 || std::ranges::min(speeds) <= 0.0) return;
  const auto count = static_cast<int>(speeds.size());
  const double fastest = std::ranges::max(speeds);
  const double even = lost(even_shares(count, count), speeds);
  const double balanced = lost(shares_by_speed(kMicroBatches * count, speeds), speeds);
  for (NodeFindings& node : nodes) {
    const std::string rate = fmt::format("{:.3g}", node.products_per_second * 1e-9);
    const std::string what = fmt::format("{} GFLOP/s in products on its processors", rate);
    if (node.products_per_second >= kSlowNode * fastest) {
      node.findings.push_back({Verdict::kOk, "speed", what, "", rate});
      continue;
    }
    node.findings.push_back(
        {Verdict::kWarning, "speed",
         fmt::format("{}, where the fastest node has {:.3g}: equal shares of a step leave {:.0f} % "
                     "of all nodes' speed unused, shares by speed {:.0f} %",
                     what, fastest * 1e-9, 100 * even, 100 * balanced),
         "take equal nodes, or batch.balance auto (each of 8 micro-batches or more; not with "
         "run.same_bits, nor from shard.stage 2 on)",
         rate});
  }
}

}  // namespace trireme
