// What MPI's messages and our collectives cost.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/topology/planner.h"

#include "plan/group_costs.h"

namespace trireme::plan {
namespace {

const DistanceRates& rates_at(const NetworkRates& rates, int distance) {
  return rates.distances[std::min(static_cast<std::size_t>(distance), rates.distances.size() - 1)];
}

int farthest(const RankBlocks& blocks) {
  return blocks.blocks(0) == 1 ? 0 : blocks.tiers();
}

// The rate of a message between ranks so far apart.
double message_rate(const NetworkRates& rates, int distance) {
  const DistanceRates& there = rates_at(rates, distance);
  double rate = there.flow;
  if (there.host > 0.0) rate = std::min(rate, there.host);
  for (int between = 2; between <= distance; ++between) {
    const double block = rates_at(rates, between).block;
    if (block > 0.0) rate = std::min(rate, block);
  }
  return rate;
}

constexpr int kMostSimulated = 8;  // ranks, for which a simulation takes less than a millisecond
// What is longer takes as much longer: a simulated world has addresses for so many bytes only.
constexpr std::size_t kMostBytes = std::size_t{1} << 32;

// The closed forms of our algorithms.
class MpiCosts final : public GroupCosts {
 public:
  MpiCosts(const NetworkDescription& network, const RankBlocks& blocks, const Sharing& sharing)
      : network_(network),
        blocks_(blocks),
        sharing_(sharing),
        shared_(shared_rates(network, sharing)) {}

  CommunicationCost cost(std::string_view operation, std::size_t bytes) override {
    CommunicationCost cost{.leaves_node = blocks_.blocks(0) > 1};
    const auto collective = collective_named(operation);
    if (!collective || *collective == Collective::kExchange) return rounds(cost, bytes);
    make_networks();
    const std::size_t looked_at = std::clamp<std::size_t>(bytes, 1, kMostBytes);
    const Algorithm algorithm = choose(*collective, looked_at);
    const Prediction time = run(*collective, algorithm, looked_at);
    const double factor =
        std::max(1.0, static_cast<double>(bytes) / static_cast<double>(looked_at));
    const double seconds = factor * time.seconds;
    cost.flow = time.share * seconds;
    cost.latency = corrected_seconds(*collective, algorithm, bytes, seconds) - cost.flow;
    cost.latency = std::max(cost.latency, 0.0);
    return cost;
  }

 private:
  void make_networks() {
    if (run_ != nullptr) return;
    const std::size_t worthwhile = worthwhile_bytes(blocks_, network_.rates);
    run_ = std::make_shared<PredictedNetwork>(blocks_, shared_, worthwhile);
    planned_ = run_;
    if (sharing_ == Sharing()) return;
    const NetworkRates alone = shared_rates(network_, {});
    planned_ = std::make_shared<PredictedNetwork>(blocks_, alone, worthwhile);
  }

  // A barrier by dissemination: in each round every rank tells one twice as far from it. What else
  // there may be is taken to send its bytes once.
  CommunicationCost rounds(CommunicationCost cost, std::size_t bytes) const {
    const int ranks = blocks_.ranks();
    for (int step = 1; step < ranks; step *= 2) {
      double latency = 0.0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int distance = blocks_.distance(rank, (rank + step) % ranks);
        latency = std::max(latency, rates_at(shared_, distance).latency);
      }
      cost.latency += latency + 2.0 * network_.rates.costs.message;
    }
    cost.flow = static_cast<double>(bytes) / message_rate(shared_, farthest(blocks_));
    return cost;
  }

  // Among few ranks the tasks of production are run, because forms do not count how many segments
  // are under way at once, which matters where one message cannot fill a link.
  Prediction run(Collective collective, Algorithm algorithm, std::size_t bytes) {
    if (blocks_.ranks() <= kMostSimulated) {
      return run_->predictor.simulate(collective, algorithm, bytes);
    }
    return predict(run_->predictor, collective, algorithm, bytes).value_or(Prediction());
  }

  double corrected_seconds(Collective collective, Algorithm algorithm, std::size_t bytes,
                           double seconds) const {
    if (network_.errors.empty()) return seconds;
    return corrected(seconds, network_.errors, collective, algorithm, bytes, blocks_.ranks(),
                     run_->predictor.partials());
  }

  // What make_table would choose for this size: of several that are as fast, that with the fewest
  // turns.
  Algorithm choose(Collective collective, std::size_t bytes) {
    constexpr double kAsFast = 1.015;
    std::vector<std::pair<double, Algorithm>> timed;
    double least = std::numeric_limits<double>::infinity();
    for (const Algorithm one : choosable(collective, network_.any_order)) {
      if (planned_->predictor.is_exchange(collective, one)) continue;
      const double memory = whole_workspace(collective, one, bytes, blocks_.ranks());
      if (memory > kMostPlannedWorkspace) continue;
      const auto time = predict(planned_->predictor, collective, one, bytes);
      if (!time) continue;
      timed.emplace_back(corrected_seconds(collective, one, bytes, time->seconds), one);
      least = std::min(least, timed.back().first);
    }
    std::optional<Algorithm> best;
    const auto turns = [&](Algorithm one) { return planned_->predictor.turns(collective, one); };
    for (const auto& [seconds, one] : timed) {
      if (seconds > kAsFast * least) continue;
      if (!best || turns(one) < turns(*best)) best = one;
    }
    return best.value_or(Algorithm::kPairwise);
  }

  const NetworkDescription& network_;
  RankBlocks blocks_;
  Sharing sharing_;
  NetworkRates shared_;
  // Where the ranks are alone, as the planner takes them to be, and with others.
  std::shared_ptr<PredictedNetwork> planned_, run_;
};

class MessageCosts final : public GroupCosts {
 public:
  MessageCosts(const NetworkDescription& network, const RankBlocks& blocks,
               const Sharing& sharing) {
    const NetworkRates rates = shared_rates(network, sharing);
    const int distance = blocks.distance(0, 1);
    latency_ = rates_at(rates, distance).latency + rates.costs.message;  // both ends post at once
    rate_ = message_rate(rates, distance);
    leaves_node_ = distance > 0;
  }

  CommunicationCost cost(std::string_view, std::size_t bytes) override {
    return {.latency = latency_,
            .flow = static_cast<double>(bytes) / rate_,
            .leaves_node = leaves_node_};
  }

 private:
  double latency_ = 0.0, rate_ = 0.0;
  bool leaves_node_ = false;
};

}  // namespace

NetworkRates shared_rates(const NetworkDescription& network, const Sharing& sharing) {
  NetworkRates rates = network.rates;
  const auto& [efficiency, latency, start] = network.constants;
  for (std::size_t distance = 0; distance < rates.distances.size(); ++distance) {
    DistanceRates& one = rates.distances[distance];
    const bool inside = distance == 0;
    const double host = one.host > 0.0 ? one.host : one.flow, reached = inside ? 1.0 : efficiency;
    one.host = reached * host / (inside ? sharing.inside : sharing.node);
    one.flow = std::min(reached * one.flow, one.host);
    one.block *= efficiency / sharing.leaf;
    if (!inside) one.latency *= latency;
  }
  return rates;
}

std::unique_ptr<GroupCosts> make_mpi_costs(const NetworkDescription& network,
                                           const RankBlocks& blocks, const Sharing& sharing) {
  return std::make_unique<MpiCosts>(network, blocks, sharing);
}

std::unique_ptr<GroupCosts> make_message_costs(const NetworkDescription& network,
                                               const RankBlocks& blocks, const Sharing& sharing,
                                               bool by_nccl) {
  if (by_nccl) return make_nccl_costs(network, blocks, sharing);
  return std::make_unique<MessageCosts>(network, blocks, sharing);
}

}  // namespace trireme::plan
