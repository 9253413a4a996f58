// Measures a network.
#include "trireme/topology/probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/node_names.h"
#include "trireme/base/upper_median.h"
#include "trireme/comm/reduce.h"

namespace trireme {
namespace {

constexpr std::size_t kSteps = 6;  // of a stream; the first one does not count
// A network may let a burst pass faster than its links. The first step takes up that much.
constexpr std::size_t kBurst = std::size_t{1} << 20;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a step
// This is for a step between two ranks. Where flows share a link, one begins after others while
// these have much on the way, which would count as if the link had carried it in the time that
// counts.
constexpr std::size_t kFewestBytes = std::size_t{512} << 10;
constexpr double kStepSeconds = 0.02;  // of the fastest stream, unless a step has kMostBytes
constexpr int kPings = 600, kFirstPings = 100;
constexpr std::size_t kPingRounds = 5;  // in one, ranks may share a processor in an unlucky way
constexpr std::size_t kWork = std::size_t{4} << 20;  // bytes to copy and to add

using Times = std::vector<ArrivalTimes>;  // by rank

Tensor bytes_of(std::vector<std::byte>& memory, std::size_t begin, std::size_t count) {
  return Tensor::wrap(memory.data() + begin, {static_cast<std::int64_t>(count)}, DType::kU8);
}

class Prober {
 public:
  Prober(Communicator& comm, const RankBlocks& blocks, const std::vector<std::string>& hosts)
      : comm_(comm), blocks_(blocks), hosts_(hosts) {}

  Probe run() {
    Probe probe;
    for (int distance = 0; distance <= blocks_.tiers(); ++distance) {
      const ProbeRounds rounds = probe_rounds(blocks_, distance);
      if (rounds.flow.empty()) continue;
      // There may be no two ranks at a distance in between, as where each leaf has one node.
      probe.rates.distances.resize(static_cast<std::size_t>(distance) + 1);
      probe.rates.distances.back() = measure(distance, rounds, probe);
    }
    fill_gaps(probe.rates.distances);
    add_slow_hosts(probe);
    probe.rates.costs = measure_costs();
    return probe;
  }

 private:
  DistanceRates measure(int distance, const ProbeRounds& rounds, Probe& probe) {
    DistanceRates rates;
    rates.latency = measure_latency(rounds.flow.front());
    const auto flows = measure_rounds(rounds.flow);
    rates.flow = usual_rate(flows);
    const auto hosts = measure_rounds(rounds.host);
    rates.host = hosts.empty() ? rates.flow : usual_rate(hosts);
    const auto blocks = measure_rounds(rounds.block);
    if (!blocks.empty()) rates.block = usual_rate(blocks);
    if (distance == 0) return rates;
    for (const auto& [stream, rate] : flows) {
      const auto [from, to] = stream.ranks.front();
      probe.streams.push_back({distance, blocks_.block(0, from), blocks_.block(0, to), rate});
    }
    std::vector<MeasuredStream> measured;
    for (const auto& [stream, rate] : blocks) {
      measured.push_back({distance, stream.from, stream.to, rate});
    }
    for (SlowLink& slow : find_slow(measured, names_of_blocks(distance - 1))) {
      slow.is_host = false;
      slow_blocks_.push_back({distance, std::move(slow)});
    }
    return rates;
  }

  using Measured = std::vector<std::pair<ProbeStream, double>>;

  static double usual_rate(const Measured& measured) {
    std::vector<double> rates;
    for (const auto& [stream, rate] : measured) rates.push_back(rate);
    return upper_median(std::move(rates));
  }

  // The first round is repeated with more bytes until it takes long enough.
  Measured measure_rounds(const std::vector<ProbeRound>& rounds) {
    Measured measured;
    std::size_t bytes = kBurst;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      const ProbeRound& round = rounds[i];
      Times times = send(round, bytes);
      while (i == 0 && bytes < kMostBytes && shortest_step(round, times) < kStepSeconds) {
        bytes *= 4;
        times = send(round, bytes);
      }
      for (const ProbeStream& stream : round) measured.emplace_back(stream, rate_of(stream, times));
    }
    return measured;
  }

  static std::size_t step_bytes(const ProbeStream& stream, std::size_t bytes) {
    return std::max(kFewestBytes, bytes / stream.ranks.size());
  }

  static Times receivers_of(const ProbeStream& stream, const Times& times) {
    std::vector<int> ranks;
    for (const auto& [from, to] : stream.ranks) ranks.push_back(to);
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    Times own;
    for (const int rank : ranks) own.push_back(times[static_cast<std::size_t>(rank)]);
    return own;
  }
  static double rate_of(const ProbeStream& stream, const Times& times) {
    return stream_rate(receivers_of(stream, times));
  }
  static double shortest_step(const ProbeRound& round, const Times& times) {
    double least = std::numeric_limits<double>::infinity();
    for (const ProbeStream& stream : round) {
      for (const ArrivalTimes& each : receivers_of(stream, times)) {
        least = std::min(least, each.seconds.back() - each.seconds.front());
      }
    }
    return least / static_cast<double>(kSteps - 1);
  }

  // Collective. Each stream of the round carries kSteps steps of about `bytes`. Returns when they
  // arrived at each rank; the time is that since all ranks were ready.
  Times send(const ProbeRound& round, std::size_t bytes) {
    Times times(static_cast<std::size_t>(comm_.size()));
    struct Message {
      Transfer::Direction direction;
      int peer;
      std::size_t bytes;
    };
    std::vector<Message> messages;
    std::size_t all = 0;
    for (const ProbeStream& stream : round) {
      const std::size_t step = step_bytes(stream, bytes);
      for (const auto& [from, to] : stream.ranks) {
        times[static_cast<std::size_t>(to)].bytes += static_cast<double>(step);
        if (from == comm_.rank()) messages.push_back({Transfer::Direction::kSend, to, step});
        if (to == comm_.rank()) messages.push_back({Transfer::Direction::kReceive, from, step});
      }
    }
    for (const Message& message : messages) all += message.bytes;
    if (memory_.size() < all) memory_.resize(all);
    comm_.barrier().wait_host();
    const Stopwatch watch;
    std::vector<double> seconds(static_cast<std::size_t>(comm_.size()) * kSteps);
    // A rank that receives from several others begins a step when it has all of the one before, so
    // that no sender is ahead of what the times tell.
    for (std::size_t i = 0; i < (messages.empty() ? 0 : kSteps); ++i) {
      std::vector<Transfer> transfers;
      std::size_t begin = 0;
      for (const Message& message : messages) {
        transfers.push_back(
            {message.direction, message.peer, bytes_of(memory_, begin, message.bytes)});
        begin += message.bytes;
      }
      comm_.exchange(Stream(), std::move(transfers)).wait_host();
      seconds[static_cast<std::size_t>(comm_.rank()) * kSteps + i] = watch.seconds();
    }
    comm_.all_reduce_host(std::span<double>(seconds), ReduceOp::kSum);
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(rank * kSteps);
      times[rank].seconds.assign(begin, begin + kSteps);
    }
    return times;
  }

  // Collective. Returns half of the time that a small message takes there and back.
  double measure_latency(const ProbeRound& round) {
    std::vector<double> seconds(kPingRounds * round.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      if (i % round.size() == 0) comm_.barrier().wait_host();
      const auto [from, to] = round[i % round.size()].ranks.front();
      if (from == comm_.rank()) {
        seconds[i] = ping(to);
      } else if (to == comm_.rank()) {
        ping(from);
      }
    }
    comm_.all_reduce_host(std::span<double>(seconds), ReduceOp::kSum);
    return low(std::move(seconds));
  }

  // Returns the value below which a quarter lies: what else runs on the hosts only adds to a
  // latency.
  static double low(std::vector<double> values) {
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::nth_element(values.begin(), place, values.end());
    return *place;
  }

  double ping(int peer) {
    std::vector<std::byte> memory(2);
    const Transfer there = {Transfer::Direction::kSend, peer, bytes_of(memory, 0, 1)};
    const Transfer back = {Transfer::Direction::kReceive, peer, bytes_of(memory, 1, 1)};
    std::vector<double> seconds;
    const bool itself = peer == comm_.rank(), first = peer > comm_.rank();
    for (int i = 0; i < kPings + kFirstPings; ++i) {
      const Stopwatch watch;
      if (itself) {
        comm_.exchange(Stream(), {there, back}).wait_host();
      } else {
        comm_.exchange(Stream(), {first ? there : back}).wait_host();
        comm_.exchange(Stream(), {first ? back : there}).wait_host();
      }
      if (i >= kFirstPings) seconds.push_back(watch.seconds());
    }
    return low(std::move(seconds)) / (itself ? 1.0 : 2.0);
  }

  // Collective. Returns the costs of the usual rank.
  SimulatedCosts measure_costs() {
    comm_.barrier().wait_host();
    SimulatedCosts costs;
    std::vector<double> pings(kPingRounds);
    for (double& seconds : pings) seconds = ping(comm_.rank());
    costs.message = low(std::move(pings)) / 2.0;  // a message to oneself is posted at both ends
    std::vector<std::byte> from(kWork), to(kWork);
    const auto fastest = [](const auto& function) {
      double least = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 3; ++i) {
        const Stopwatch watch;
        function();
        least = std::min(least, watch.seconds());
      }
      return least / static_cast<double>(kWork);
    };
    costs.copied_byte = fastest([&] { std::memcpy(to.data(), from.data(), kWork); });
    const std::array<const std::byte*, 2> sources = {from.data(), to.data()};
    costs.reduced_byte = fastest([&] {
      reduce_tree(ReduceOp::kSum, DType::kF32, sources, to.data(), kWork / sizeof(float));
    });
    return {.message = usual_of_ranks(costs.message),
            .reduced_byte = usual_of_ranks(costs.reduced_byte),
            .copied_byte = usual_of_ranks(costs.copied_byte)};
  }

  double usual_of_ranks(double mine) {
    std::vector<double> all(static_cast<std::size_t>(comm_.size()));
    all[static_cast<std::size_t>(comm_.rank())] = mine;
    comm_.all_reduce_host(std::span<double>(all), ReduceOp::kSum);
    return upper_median(std::move(all));
  }

  std::vector<std::string> names_of_blocks(int tier) const {
    std::vector<std::vector<std::string>> hosts(static_cast<std::size_t>(blocks_.blocks(tier)));
    for (int rank = 0; rank < blocks_.ranks(); ++rank) {
      hosts[static_cast<std::size_t>(blocks_.block(tier, rank))].push_back(
          hosts_[static_cast<std::size_t>(rank)]);
    }
    std::vector<std::string> names;
    for (auto& each : hosts) names.push_back("leaf of " + node_list(std::move(each)));
    return names;
  }

  void add_slow_hosts(Probe& probe) const {
    std::vector<std::string> names(static_cast<std::size_t>(blocks_.blocks(0)));
    std::vector<int> ranks(names.size());  // one of each node
    for (int rank = 0; rank < blocks_.ranks(); ++rank) {
      const auto node = static_cast<std::size_t>(blocks_.block(0, rank));
      names[node] = hosts_[static_cast<std::size_t>(rank)];
      ranks[node] = rank;
    }
    const auto in_slow_blocks = [&](const SlowLink& pair) {
      const int a = ranks[static_cast<std::size_t>(pair.from)];
      const int b = ranks[static_cast<std::size_t>(pair.to)];
      return std::ranges::any_of(slow_blocks_, [&](const auto& slow) {
        const auto& [distance, blocks] = slow;
        const auto among = [&](int block, int rank) {
          return block < 0 || block == blocks_.block(distance - 1, rank);
        };
        return blocks_.distance(a, b) >= distance && among(blocks.from, a) && among(blocks.to, b);
      });
    };
    for (SlowLink& slow : find_slow(probe.streams, names)) {
      if (slow.from >= 0 && slow.to >= 0 && in_slow_blocks(slow)) continue;
      probe.slow.push_back(std::move(slow));
    }
    for (const auto& [distance, slow] : slow_blocks_) probe.slow.push_back(slow);
  }

  // What was not measured is as slow as the next distance.
  static void fill_gaps(std::vector<DistanceRates>& distances) {
    for (std::size_t i = distances.size() - 1; i-- > 0;) {
      if (distances[i].flow == 0.0) distances[i] = distances[i + 1];
    }
  }

  Communicator& comm_;
  const RankBlocks& blocks_;
  const std::vector<std::string>& hosts_;
  std::vector<std::byte> memory_;                      // what is sent, and where it arrives
  std::vector<std::pair<int, SlowLink>> slow_blocks_;  // with their distance
};

}  // namespace

Probe probe_network(Communicator& comm, const RankBlocks& blocks,
                    const std::vector<std::string>& hosts) {
  return Prober(comm, blocks, hosts).run();
}

}  // namespace trireme
