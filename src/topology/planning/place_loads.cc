#include "topology/planning/place_loads.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trireme {
namespace {

constexpr double kRounding = 1e-6;  // relative

// The messages of each place: with whom it exchanges how much.
class Messages {
 public:
  explicit Messages(std::vector<std::vector<PlaceLoads::Message>>& messages)
      : messages_(messages) {}

  void add(int a, int b, double bytes) {
    if (bytes <= 0.0) return;
    messages_[static_cast<std::size_t>(a)].push_back({b, bytes});
    messages_[static_cast<std::size_t>(b)].push_back({a, bytes});
  }

  // A sum of `bytes` over the places, by halving and doubling that begins with neighbours. The
  // first places are paired so that a power of two remains. The first of a pair stands for both:
  // who is near whom is not known before the places have their ranks.
  void add_sum(const std::vector<int>& places, double bytes) {
    const auto count = static_cast<unsigned>(places.size());
    const unsigned terms = std::bit_floor(count), extra = count - terms;
    for (unsigned pair = 0; pair < extra; ++pair) {
      add(places[2 * pair], places[2 * pair + 1], bytes);
    }
    const auto place_of = [&](unsigned term) {
      return places[term < extra ? 2 * term : term + extra];
    };
    for (unsigned distance = 1; distance < terms; distance *= 2) {
      for (unsigned term = 0; term < terms; ++term) {
        if ((term & distance) != 0) continue;
        add(place_of(term), place_of(term + distance), bytes / distance);
      }
    }
  }

 private:
  std::vector<std::vector<PlaceLoads::Message>>& messages_;
};

void add_messages(const GridShape& shape, const GridTraffic& traffic, Messages& messages) {
  for (const auto& replicas : shape.groups(kDataAxes)) messages.add_sum(replicas, traffic.data);
  for (const auto& parts : shape.groups(Axis::kTensor)) messages.add_sum(parts, traffic.tensor);
  for (const auto& stages : shape.groups(Axis::kPipeline)) {
    for (std::size_t i = 1; i < stages.size(); ++i) {
      messages.add(stages[i - 1], stages[i], traffic.pipeline);
    }
    if (stages.size() > 1) messages.add(stages.front(), stages.back(), traffic.ends);
  }
}

}  // namespace

bool PlaceLoads::Sum::cheaper_than(const Sum& other) const {
  if (busiest < other.busiest * (1.0 - kRounding)) return true;
  if (busiest > other.busiest * (1.0 + kRounding)) return false;
  return total < other.total * (1.0 - kRounding);
}

PlaceLoads::PlaceLoads(const GridShape& shape, const GridTraffic& traffic,
                       const TreeNetwork& network)
    : tiers_(1 + network.tiers()), messages_(static_cast<std::size_t>(shape.ranks())) {
  Messages messages(messages_);
  add_messages(shape, traffic, messages);
  for (const std::vector<Message>& of_place : messages_) work_ += of_place.size();
  work_ = (work_ + messages_.size()) * static_cast<std::size_t>(tiers_);
  for (int rank = 0; rank < network.ranks(); ++rank) {
    const auto host = static_cast<std::size_t>(network.block(0, rank));
    if (host >= ranks_of_.size()) ranks_of_.resize(host + 1);
    ranks_of_[host].push_back(rank);
  }
  blocks_of_.resize(ranks_of_.size());
  for (int tier = 0; tier < tiers_; ++tier) {
    const int first = static_cast<int>(rates_.size());
    for (std::size_t host = 0; host < ranks_of_.size(); ++host) {
      const int rank = ranks_of_[host].front();
      const int at = first + network.block(tier, rank);
      if (at >= static_cast<int>(rates_.size())) rates_.resize(static_cast<std::size_t>(at) + 1);
      rates_[static_cast<std::size_t>(at)] = network.way_up(tier, rank).bytes_per_second;
      blocks_of_[host].push_back(at);
    }
  }
}

std::vector<double> PlaceLoads::seconds_of(const HostsOfPlaces& hosts) const {
  std::vector<double> seconds(rates_.size(), 0.0);
  for (int place = 0; place < places(); ++place) {
    for (const Message& message : messages(place)) {
      if (message.peer > place) continue;  // each pair once
      add(seconds, hosts[static_cast<std::size_t>(place)],
          hosts[static_cast<std::size_t>(message.peer)], message.bytes);
    }
  }
  return seconds;
}

PlaceLoads::Sum PlaceLoads::sum_of(const std::vector<double>& seconds) {
  const auto busiest = std::max_element(seconds.begin(), seconds.end());
  return {.busiest = busiest == seconds.end() ? 0.0 : *busiest,
          .total = 2.0 * std::accumulate(seconds.begin(), seconds.end(), 0.0)};
}

}  // namespace trireme
