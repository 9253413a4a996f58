#include "trireme/topology/prediction.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trireme/comm/collective_tasks.h"

#include "topology/planning/round_shapes.h"
#include "topology/planning/rounds.h"

namespace trireme {
namespace {

using Pattern = CommunicationRound::Pattern;

// What a rank itself does.
double own_seconds(const SimulatedCosts& costs, const CommunicationRound& round,
                   const RoundShape& shape) {
  return shape.ends * costs.message + round.reduced * shape.reduced * costs.reduced_byte +
         round.copied * costs.copied_byte;
}

}  // namespace

Predictor::Predictor(const TreeNetwork& network, const SimulatedCosts& costs,
                     std::shared_ptr<const RankBlocks> blocks, std::size_t worthwhile_bytes)
    : network_(network),
      costs_(costs),
      blocks_(std::move(blocks)),
      worthwhile_bytes_(worthwhile_bytes),
      tiers_(std::make_shared<const TierBlocks>(network.ranks(), blocks_.get())),
      sum_tiers_(std::make_shared<const TierBlocks>(tiers_of_sums(network.ranks(), blocks_.get()))),
      shapes_(std::make_unique<RoundShapes>(network, costs.latency, blocks_.get(), *tiers_,
                                            *sum_tiers_)) {}

Predictor::~Predictor() = default;

int Predictor::partials() const {
  int count = 0;
  for (const auto& tier : tiers_->tiers) {
    for (const TierBlocks::Block& block : tier) count += block.subtrees;
  }
  return count;
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
  std::vector<double> busy(network_.links().size());
  for (std::size_t i = 0; i < form->rounds.size(); ++i) {
    CommunicationRound round = form->rounds[i];
    const RoundShape& shape = shapes_->of(round.pattern, round.step);
    for (const auto& [link, seconds] : shape.links) {
      busy[static_cast<std::size_t>(link)] += round.repeats * seconds * round.bytes;
    }
    round.bytes /= segments;
    round.reduced /= segments;
    round.copied /= segments;
    const double own_part = own_seconds(costs_, round, shape);
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
    messages += round.repeats * shapes_->of(round.pattern, round.step).messages;
  }
  return messages;
}

}  // namespace trireme
