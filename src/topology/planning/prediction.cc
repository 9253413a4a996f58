#include "trireme/topology/prediction.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/sum_tree.h"

#include "topology/planning/rounds.h"

namespace trireme {
namespace {

using Pattern = CommunicationRound::Pattern;

}  // namespace

Predictor::Predictor(const TreeNetwork& network, const SimulatedCosts& costs,
                     std::shared_ptr<const RankBlocks> blocks, std::size_t worthwhile_bytes)
    : network_(network),
      costs_(costs),
      blocks_(std::move(blocks)),
      worthwhile_bytes_(worthwhile_bytes),
      tiers_(std::make_shared<const TierBlocks>(network.ranks(), blocks_.get())),
      sum_tiers_(std::make_shared<const TierBlocks>(tiers_of_sums(network.ranks(), blocks_.get()))),
      loads_(network.links().size()) {
  order_.resize(static_cast<std::size_t>(ranks()));
  std::iota(order_.begin(), order_.end(), 0);
  if (blocks_) order_ = blocks_->in_order();
}

int Predictor::partials() const {
  int count = 0;
  for (const auto& tier : tiers_->tiers) {
    for (const TierBlocks::Block& block : tier) count += block.subtrees;
  }
  return count;
}

void Predictor::load(Shape& shape, int from, int to, double weight) {
  shape.latency = std::max(shape.latency, network_.latency(from, to).value_or(costs_.latency));
  shape.flow = std::max(shape.flow, weight / network_.highest_rate(from, to));
  route_.clear();
  network_.route(from, to, route_);
  ++shape.messages;
  for (const int link : route_) {
    double& loaded = loads_[static_cast<std::size_t>(link)];
    if (loaded == 0.0) loaded_.push_back(link);
    loaded += weight;
  }
}

// What crosses between two blocks is divided evenly among their ranks.
void Predictor::load_gifts(Shape& shape, int hop, bool up) {
  const TierBlocks& tiers = up ? *sum_tiers_ : *tiers_;
  const auto& blocks = tiers.tiers[static_cast<std::size_t>(hop)];
  std::vector<int> ends(static_cast<std::size_t>(ranks()));
  std::vector<double> added(static_cast<std::size_t>(ranks()));
  for (const TierBlocks::Block& parent : tiers.tiers[static_cast<std::size_t>(hop + 1)]) {
    for (const int one : parent.below) {
      for (const int other : parent.below) {
        if (one == other) continue;
        const TierBlocks::Block& from = blocks[static_cast<std::size_t>(one)];
        const TierBlocks::Block& to = blocks[static_cast<std::size_t>(other)];
        const std::size_t messages = std::max(from.ranks.size(), to.ranks.size());
        const double weight =
            (up ? from.subtrees : 1) / static_cast<double>(parent.below.size() * messages);
        for (std::size_t i = 0; i < messages; ++i) {
          const int a = from.ranks[i % from.ranks.size()], b = to.ranks[i % to.ranks.size()];
          load(shape, a, b, weight);
          ++ends[static_cast<std::size_t>(a)], ++ends[static_cast<std::size_t>(b)];
          added[static_cast<std::size_t>(b)] += weight;
        }
      }
    }
  }
  shape.ends = std::ranges::max(ends);
  shape.reduced = std::ranges::max(added);
}

void Predictor::load_star(Shape& shape, int hop) {
  const auto& blocks = tiers_->tiers[static_cast<std::size_t>(hop)];
  for (const TierBlocks::Block& parent : tiers_->tiers[static_cast<std::size_t>(hop + 1)]) {
    for (const int block : parent.below) {
      const int to = blocks[static_cast<std::size_t>(block)].ranks.front();
      if (to != parent.ranks.front()) load(shape, parent.ranks.front(), to);
    }
    shape.ends = std::max(shape.ends, static_cast<int>(parent.below.size()) - 1);
  }
}

// Each rank passes on what is for an equal share of the ranks elsewhere.
void Predictor::load_inside(Shape& shape, bool own) {
  for (const TierBlocks::Block& group : tiers_->groups()) {
    const auto size = static_cast<double>(group.ranks.size());
    const double weight = (ranks() - size) / size + (own ? 1.0 : 0.0);
    for (const int from : group.ranks) {
      for (const int to : group.ranks) {
        if (from != to) load(shape, from, to, weight);
      }
    }
    const int others = static_cast<int>(group.ranks.size()) - 1;
    shape.ends = std::max(shape.ends, (own ? 4 : 2) * others);
  }
}

void Predictor::load_across(Shape& shape) {
  const auto& groups = tiers_->groups();
  std::vector<int> ends(static_cast<std::size_t>(ranks()));
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = 0; b < groups.size(); ++b) {
      if (a == b) continue;
      const std::vector<int>&from = groups[a].ranks, &to = groups[b].ranks;
      const int sender = from[b % from.size()], receiver = to[a % to.size()];
      load(shape, sender, receiver, static_cast<double>(from.size() * to.size()));
      ++ends[static_cast<std::size_t>(sender)], ++ends[static_cast<std::size_t>(receiver)];
    }
  }
  shape.ends = std::ranges::max(ends);
}

// A round is a hop of average length, so that as many rounds as there are hops take what all take.
void Predictor::load_chain(Shape& shape) {
  const double hops = ranks() - 1;
  double latency = 0.0, flow = 0.0;
  for (std::size_t place = 1; place < order_.size(); ++place) {
    const int from = order_[place - 1], to = order_[place];
    load(shape, from, to, 1.0 / hops);
    latency += network_.latency(from, to).value_or(costs_.latency);
    double slowest = 1.0 / network_.highest_rate(from, to);
    for (const int link : route_) {
      const Link& one = network_.links()[static_cast<std::size_t>(link)];
      slowest = std::max(slowest, 1.0 / one.bytes_per_second);
    }
    flow += slowest;
  }
  shape.latency = latency / hops;
  shape.flow = flow / hops;
  shape.messages = 1;
}

// Every rank with its likes in the other blocks.
void Predictor::load_tier(Shape& shape, int hop) {
  const std::vector<int>& sizes = tiers_->sizes;
  int inside = 1;  // ranks of a block
  for (int i = 0; i < hop; ++i) inside *= sizes[static_cast<std::size_t>(i)];
  const int blocks = sizes[static_cast<std::size_t>(hop)];
  if (inside == 1 && blocks == ranks()) {  // of everyone with everyone, which need not be counted
    shape = everyone();
    return;
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    const int first = rank / (inside * blocks) * inside * blocks + rank % inside;
    for (int block = 0; block < blocks; ++block) {
      const int peer = first + block * inside;
      if (peer != rank) load(shape, rank, peer);
    }
  }
  shape.ends = 2 * (blocks - 1);
}

void Predictor::load_tree(Shape& shape, int depth) {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (std::popcount(static_cast<unsigned>(rank)) != depth) continue;
    const int above =
        rank == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks()))) : rank & -rank;
    int children = 0;
    for (int bit = above / 2; bit > 0; bit /= 2) {
      if (rank + bit < ranks()) load(shape, rank, rank + bit), ++children;
    }
    shape.ends = std::max(shape.ends, children);
  }
}

Predictor::Shape Predictor::everyone() const {
  Shape shape{.messages = std::int64_t{ranks()} * (ranks() - 1), .ends = 2 * (ranks() - 1)};
  // One of the ranks that are farthest from rank 0 is as far as any two can be.
  for (int rank = 1; rank < ranks(); ++rank) {
    for (const int other : {0, rank - 1}) {
      shape.latency =
          std::max(shape.latency, network_.latency(other, rank).value_or(costs_.latency));
      shape.flow = std::max(shape.flow, 1.0 / network_.highest_rate(other, rank));
    }
  }
  std::vector<double> messages;
  network_.count_everyone(messages);
  for (std::size_t link = 0; link < messages.size(); ++link) {
    if (messages[link] == 0.0) continue;
    shape.links.emplace_back(static_cast<int>(link),
                             messages[link] / network_.links()[link].bytes_per_second);
  }
  return shape;
}

Predictor::Shape Predictor::make_shape(Pattern pattern, int step) {
  const int p = ranks();
  const SumTree tree(p, blocks_.get());
  const int terms = tree.terms();
  Shape shape{.ends = 2};
  switch (pattern) {
    case Pattern::kShift:
      for (int rank = 0; rank < p; ++rank) load(shape, rank, (rank + step) % p);
      break;
    case Pattern::kXor:
      for (int term = 0; term < terms; ++term) {
        load(shape, tree.rank_of(term), tree.rank_of(term ^ step));
      }
      break;
    case Pattern::kJoin:
    case Pattern::kSpread:
      shape.ends = 1;
      for (int term = 0; term < terms; term += 2 * step) {
        const int low = tree.rank_of(term), high = tree.rank_of(term + step);
        load(shape, pattern == Pattern::kJoin ? high : low, pattern == Pattern::kJoin ? low : high);
      }
      break;
    case Pattern::kEveryone:
      shape = everyone();
      break;
    case Pattern::kFold:
    case Pattern::kUnfold:
      shape.ends = 1;
      for (int term = 0; term < tree.pairs(); ++term) {
        const int stands = tree.rank_of(term), other = stands ^ 1;
        if (pattern == Pattern::kFold) {
          load(shape, other, stands);
        } else {
          load(shape, stands, other);
        }
      }
      break;
    case Pattern::kRing:
      for (std::size_t place = 0; place < order_.size(); ++place) {
        load(shape, order_[place], order_[(place + 1) % order_.size()]);
      }
      break;
    case Pattern::kTier:
      load_tier(shape, step);
      break;
    case Pattern::kTree:
      load_tree(shape, step);
      break;
    case Pattern::kGiveUp:
    case Pattern::kGiveDown:
      load_gifts(shape, step, pattern == Pattern::kGiveUp);
      break;
    case Pattern::kStar:
      shape.ends = 1;
      load_star(shape, step);
      break;
    case Pattern::kChain:
      load_chain(shape);
      break;
    case Pattern::kGather:
    case Pattern::kHandOut:
      shape.ends = 0;
      load_inside(shape, pattern == Pattern::kGather);
      break;
    case Pattern::kCross:
      load_across(shape);
      break;
  }
  for (const int link : loaded_) {
    double& loaded = loads_[static_cast<std::size_t>(link)];
    shape.links.emplace_back(
        link, loaded / network_.links()[static_cast<std::size_t>(link)].bytes_per_second);
    loaded = 0.0;
  }
  loaded_.clear();
  for (const auto& [link, seconds] : shape.links) shape.busiest = std::max(shape.busiest, seconds);
  return shape;
}

const Predictor::Shape& Predictor::shape_of(Pattern pattern, int step) {
  const auto known = shapes_.find({pattern, step});
  if (known != shapes_.end()) return known->second;
  return shapes_.emplace(std::pair(pattern, step), make_shape(pattern, step)).first->second;
}

// What a rank itself does.
double Predictor::own_seconds(const CommunicationRound& round, const Shape& shape) const {
  return shape.ends * costs_.message + round.reduced * shape.reduced * costs_.reduced_byte +
         round.copied * costs_.copied_byte;
}

std::optional<ClosedForm> Predictor::form_of(Collective collective, Algorithm algorithm,
                                             double bytes) const {
  return closed_form_of(collective, algorithm, ranks(), bytes, *tiers_, *sum_tiers_,
                        static_cast<double>(worthwhile_bytes_));
}

std::optional<Prediction> Predictor::closed_form(Collective collective, Algorithm algorithm,
                                                 std::size_t bytes) {
  const auto form = form_of(collective, algorithm, static_cast<double>(bytes));
  if (!form) return {};
  const double segments = form->segments;
  double segment = 0.0;  // one segment alone
  double abreast = 0.0;  // all segments, each round together
  double own = 0.0;      // what a rank does for all segments
  double fill = 0.0;     // until what is busiest begins, and after it ends
  std::vector<double> busy(loads_.size());
  for (std::size_t i = 0; i < form->rounds.size(); ++i) {
    CommunicationRound round = form->rounds[i];
    const Shape& shape = shape_of(round.pattern, round.step);
    for (const auto& [link, seconds] : shape.links) {
      busy[static_cast<std::size_t>(link)] += round.repeats * seconds * round.bytes;
    }
    round.bytes /= segments;
    round.reduced /= segments;
    round.copied /= segments;
    const double own_part = own_seconds(round, shape);
    const double shared = round.bytes * shape.busiest;
    const double seconds = shape.latency + std::max(shared, round.bytes * shape.flow) + own_part;
    segment += round.repeats * seconds;
    // Segments share the links, but not the rate that one message has at most. The additions to the
    // other segments hide the latency of one.
    const double shown = std::max(shape.latency - (segments - 1) * own_part, 0.0);
    abreast += round.repeats * std::max(segments * std::max(shared, own_part) + shown, seconds);
    // In a chain each rank receives and sends a segment once.
    own += segments * (round.pattern == Pattern::kChain ? 1 : round.repeats) * own_part;
    if (i == 0 || i + 1 == form->rounds.size()) fill += seconds;
  }
  if (form->abreast) return described(abreast, busy);
  const double busiest = busy.empty() ? 0.0 : *std::ranges::max_element(busy);
  const bool is_chain = !form->rounds.empty() && form->rounds.front().pattern == Pattern::kChain;
  if (is_chain) fill = segment - std::max(busiest, own) / segments;
  const double always = segments > 1 ? std::max(busiest, own) + fill : 0.0;
  return described(std::max(segment, always), busy);
}

bool Predictor::is_coarse(Collective collective, Algorithm algorithm) const {
  return algorithm == Algorithm::kTiered && collective != Collective::kBroadcast &&
         collective != Collective::kAllToAll && tiers_->sizes.empty();
}

bool Predictor::is_exchange(Collective collective, Algorithm algorithm) const {
  return algorithm == Algorithm::kTiered && collective == Collective::kReduceScatter &&
         tiers_->hops() > 1 && sum_tiers_->hops() == 1;
}

Prediction Predictor::simulate(Collective collective, Algorithm algorithm, std::size_t bytes) {
  SimulatedWorld world(network_, {.costs = costs_,
                                  .contents = false,
                                  .worthwhile_bytes = worthwhile_bytes_,
                                  .blocks = blocks_});
  const std::int64_t part = (static_cast<std::int64_t>(bytes) + 4 * ranks() - 1) / (4 * ranks());
  const Tensor one = world.tensor(part, DType::kF32),
               all = world.tensor(part * ranks(), DType::kF32);
  const SimulatedWorld::Result result = world.run(ranks(), [&](TransportPtr transport) {
    const bool gathers = collective == Collective::kAllGather;
    const bool scatters = collective == Collective::kReduceScatter;
    return make_collective(collective, algorithm, std::move(transport),
                           {.input = gathers ? one : all, .output = scatters ? one : all});
  });
  std::vector<double> busy(result.link_bytes);
  for (std::size_t link = 0; link < busy.size(); ++link) {
    busy[link] /= network_.links()[link].bytes_per_second;
  }
  Prediction prediction = described(result.seconds, busy);
  prediction.simulated = true;
  return prediction;
}

Prediction Predictor::described(double seconds, const std::vector<double>& busy) const {
  Prediction prediction{.seconds = seconds};
  const auto most = std::ranges::max_element(busy);
  if (most == busy.end() || *most <= 0.0 || seconds <= 0.0) return prediction;
  prediction.link = network_.links()[static_cast<std::size_t>(most - busy.begin())].name;
  prediction.share = *most / seconds;
  return prediction;
}

int Predictor::turns(Collective collective, Algorithm algorithm) const {
  const auto form = form_of(collective, algorithm, 1024.0 * ranks());
  if (!form) return ranks();
  int turns = 0;
  for (const CommunicationRound& round : form->rounds) turns += round.repeats;
  return turns;
}

std::int64_t Predictor::messages(Collective collective, Algorithm algorithm) {
  const auto form = form_of(collective, algorithm, 1024.0 * ranks());
  if (!form) return std::int64_t{ranks()} * ranks();
  std::int64_t messages = 0;
  for (const CommunicationRound& round : form->rounds) {
    messages += round.repeats * shape_of(round.pattern, round.step).messages;
  }
  return messages;
}

}  // namespace trireme
