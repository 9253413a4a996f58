#include "topology/planning/rounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "trireme/comm/segments.h"

namespace trireme {
namespace {

using Pattern = CommunicationRound::Pattern;
using Rounds = std::vector<CommunicationRound>;

// The largest power of two that is not above it.
int terms_of(int ranks) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
}

Rounds everyone(double bytes, double reduced) {
  return {{.pattern = Pattern::kEveryone, .bytes = bytes, .reduced = reduced}};
}

// All-gather of `part` bytes of each rank; `copied`: bytes that a rank copies in the end.
Rounds bruck(int ranks, double part, double copied) {
  Rounds rounds;
  for (int step = 1; step < ranks; step *= 2) {
    rounds.push_back(
        {.pattern = Pattern::kShift, .step = step, .bytes = part * std::min(step, ranks - step)});
  }
  if (!rounds.empty()) rounds.back().copied = copied;
  return rounds;
}

// Cuts segments as production does.
int segments_of(double bytes, double least, std::size_t most = kMostSegments) {
  return std::clamp(static_cast<int>(std::ceil(bytes / least)), 1, static_cast<int>(most));
}

// Every rank has `bytes` for every other, and sends to one after another, in segments.
void add_steps(Rounds& rounds, int ranks, double bytes, double reduced) {
  constexpr int kCounted = 64;  // ranks, since each distance takes as much memory as they do
  const int turns = segments_of(bytes, static_cast<double>(kTurnBytes));
  if (ranks <= kCounted) {
    for (int step = 1; step < ranks; ++step) {
      rounds.push_back(
          {.pattern = Pattern::kShift, .step = step, .bytes = bytes / turns, .repeats = turns});
    }
  } else {
    // Together the links carry what they carry at once, but every turn costs a latency.
    rounds.push_back(everyone(bytes, 0.0).front());
    rounds.push_back(
        {.pattern = Pattern::kShift, .step = ranks / 2, .repeats = turns * (ranks - 1) - 1});
  }
  rounds.back().reduced = reduced / rounds.back().repeats;
}

Rounds steps(int ranks, double bytes, double reduced) {
  Rounds rounds;
  add_steps(rounds, ranks, bytes, reduced);
  return rounds;
}

// Each pair becomes one term; `bytes` go to the rank that stands for it, which adds them.
void add_fold(Rounds& rounds, int ranks, double bytes) {
  if (terms_of(ranks) == ranks) return;
  rounds.push_back({.pattern = Pattern::kFold, .bytes = bytes, .reduced = bytes});
}

void add_unfold(Rounds& rounds, int ranks, double bytes) {
  if (terms_of(ranks) == ranks) return;
  rounds.push_back({.pattern = Pattern::kUnfold, .bytes = bytes});
}

Rounds doubling(int ranks, double bytes) {
  Rounds rounds;
  add_fold(rounds, ranks, bytes);
  for (int step = 1; step < terms_of(ranks); step *= 2) {
    rounds.push_back({.pattern = Pattern::kXor, .step = step, .bytes = bytes, .reduced = bytes});
  }
  add_unfold(rounds, ranks, bytes);
  return rounds;
}

void add_halving(Rounds& rounds, int ranks, double bytes) {
  for (int step = 1; step < terms_of(ranks); step *= 2) {
    const double given = bytes / (2.0 * step);
    rounds.push_back({.pattern = Pattern::kXor, .step = step, .bytes = given, .reduced = given});
  }
}

void add_doubling(Rounds& rounds, int ranks, double bytes) {
  for (int step = terms_of(ranks) / 2; step > 0; step /= 2) {
    rounds.push_back({.pattern = Pattern::kXor, .step = step, .bytes = bytes / (2.0 * step)});
  }
}

Rounds ring(int ranks, double part, bool reduces) {
  return {{.pattern = Pattern::kRing,
           .bytes = part,
           .reduced = reduces ? part : 0.0,
           .repeats = ranks - 1}};
}

Rounds tree(int ranks, double bytes) {
  Rounds rounds;
  for (int depth = 0; (1 << depth) < ranks; ++depth) {
    rounds.push_back({.pattern = Pattern::kTree, .step = depth, .bytes = bytes});
  }
  return rounds;
}

// Adds up to term 0, and sends the result back.
Rounds binomial(int ranks, double bytes) {
  Rounds rounds;
  add_fold(rounds, ranks, bytes);
  for (int step = 1; step < terms_of(ranks); step *= 2) {
    rounds.push_back({.pattern = Pattern::kJoin, .step = step, .bytes = bytes, .reduced = bytes});
  }
  for (int step = terms_of(ranks) / 2; step > 0; step /= 2) {
    rounds.push_back({.pattern = Pattern::kSpread, .step = step, .bytes = bytes});
  }
  add_unfold(rounds, ranks, bytes);
  return rounds;
}

// Goes up the tiers with additions, or down, in which case the order is that of the way up.
Rounds tiered(const std::vector<int>& sizes, double bytes, bool reduces) {
  Rounds rounds;
  for (std::size_t hop = 0; hop < sizes.size(); ++hop) {
    bytes /= sizes[hop];
    const double others = sizes[hop] - 1.0;
    rounds.push_back({.pattern = Pattern::kTier,
                      .step = static_cast<int>(hop),
                      .bytes = bytes,
                      .reduced = reduces ? bytes * others : 0.0});
  }
  return rounds;
}

Rounds bruck_all_to_all(int ranks, double part) {
  Rounds rounds;
  for (int step = 1; step < ranks; step *= 2) {
    int parts = 0;
    for (int i = 0; i < ranks; ++i) parts += (i & step) != 0 ? 1 : 0;
    const double bytes = part * parts;  // collected before they are sent, and put back after
    rounds.push_back(
        {.pattern = Pattern::kShift, .step = step, .bytes = bytes, .copied = 2 * bytes});
  }
  if (!rounds.empty()) rounds.back().copied += 2 * part * ranks;  // turned, there and back
  return rounds;
}

std::optional<Rounds> all_reduce(Algorithm algorithm, int ranks, double bytes) {
  const double part = bytes / ranks;
  Rounds rounds;
  switch (algorithm) {
    case Algorithm::kDirect:
      return everyone(bytes, bytes * (ranks - 1));
    case Algorithm::kPairwise:
      rounds = everyone(part, part * (ranks - 1));
      rounds.push_back(everyone(part, 0.0).front());
      return rounds;
    case Algorithm::kStepwise:
      add_steps(rounds, ranks, part, part * (ranks - 1));
      add_steps(rounds, ranks, part, 0.0);
      return rounds;
    case Algorithm::kBruck:
      rounds = bruck(ranks, bytes, 0.0);
      if (!rounds.empty()) rounds.back().reduced = bytes * (ranks - 1);
      return rounds;
    case Algorithm::kDoubling:
      return doubling(ranks, bytes);
    case Algorithm::kHalving:
      add_fold(rounds, ranks, bytes);
      add_halving(rounds, ranks, bytes);
      add_doubling(rounds, ranks, bytes);
      add_unfold(rounds, ranks, bytes);
      return rounds;
    case Algorithm::kRing:
      rounds = ring(ranks, part, true);
      rounds.push_back(ring(ranks, part, false).front());
      return rounds;
    case Algorithm::kBinomial:
      return binomial(ranks, bytes);
    default:
      return {};
  }
}

std::optional<Rounds> reduce_scatter(Algorithm algorithm, int ranks, double bytes) {
  const double part = bytes / ranks;
  Rounds rounds;
  switch (algorithm) {
    case Algorithm::kPairwise:
      return everyone(part, part * (ranks - 1));
    case Algorithm::kStepwise:
      return steps(ranks, part, part * (ranks - 1));
    case Algorithm::kHalving:
      add_fold(rounds, ranks, bytes);
      add_halving(rounds, ranks, bytes);
      add_unfold(rounds, ranks, part);
      return rounds;
    case Algorithm::kRing:
      return ring(ranks, part, true);
    default:
      return {};
  }
}

std::optional<Rounds> all_gather(Algorithm algorithm, int ranks, double bytes) {
  const double part = bytes / ranks;
  Rounds rounds;
  switch (algorithm) {
    case Algorithm::kPairwise:
      return everyone(part, 0.0);
    case Algorithm::kStepwise:
      return steps(ranks, part, 0.0);
    case Algorithm::kBruck:
      return bruck(ranks, part, part * ranks);
    case Algorithm::kHalving:
      add_fold(rounds, ranks, part);
      if (!rounds.empty()) rounds.back().reduced = 0.0;
      add_doubling(rounds, ranks, bytes);
      add_unfold(rounds, ranks, bytes);
      return rounds;
    case Algorithm::kRing:
      return ring(ranks, part, false);
    default:
      return {};
  }
}

std::optional<Rounds> rounds_of(Collective collective, Algorithm algorithm, int ranks,
                                double bytes) {
  switch (collective) {
    case Collective::kAllReduce:
      return all_reduce(algorithm, ranks, bytes);
    case Collective::kReduceScatter:
      return reduce_scatter(algorithm, ranks, bytes);
    case Collective::kAllGather:
      return all_gather(algorithm, ranks, bytes);
    case Collective::kBroadcast:
      if (algorithm == Algorithm::kBinomial) return tree(ranks, bytes);
      if (algorithm != Algorithm::kChain) return {};
      return Rounds{{.pattern = Pattern::kChain, .bytes = bytes, .repeats = ranks - 1}};
    case Collective::kAllToAll:
      if (algorithm == Algorithm::kBruck) return bruck_all_to_all(ranks, bytes / ranks);
      if (algorithm == Algorithm::kStepwise) return steps(ranks, bytes / ranks, 0.0);
      if (algorithm != Algorithm::kPairwise) return {};
      return everyone(bytes / ranks, 0.0);
    case Collective::kExchange:
      break;
  }
  return {};
}

// Goes up or down the tiers, or from the root, for any blocks.
Rounds tiered_rounds(Pattern pattern, int hops, double bytes) {
  Rounds rounds;
  for (int hop = 0; hop < hops; ++hop) {
    rounds.push_back({.pattern = pattern,
                      .step = hop,
                      .bytes = bytes,
                      .reduced = pattern == Pattern::kGiveUp ? bytes : 0.0});
  }
  if (pattern != Pattern::kGiveUp) std::ranges::reverse(rounds);
  return rounds;
}

ClosedForm tiered_all_to_all(const TierBlocks& tiers, int ranks, double bytes, double worthwhile) {
  const auto& groups = tiers.groups();
  std::size_t most = 0;  // ranks of a group
  for (const TierBlocks::Block& group : groups) most = std::max(most, group.ranks.size());
  // Segments are cut as in the task, which counts bytes on all ranks that a buffer may hold.
  const double width = static_cast<double>((groups.size() + most) * most) / ranks;
  const double least = static_cast<double>(std::max(groups.size(), most)) * worthwhile;
  ClosedForm form{.segments = segments_of(bytes * width, least)};
  form.rounds.push_back({.pattern = Pattern::kGather, .bytes = bytes / ranks});
  if (groups.size() > 1) {
    form.rounds.push_back({.pattern = Pattern::kCross, .bytes = bytes / ranks});
    form.rounds.push_back({.pattern = Pattern::kHandOut, .bytes = bytes / ranks});
  }
  return form;
}

std::optional<ClosedForm> tiered_form(Collective collective, int ranks, double bytes,
                                      const TierBlocks& tiers, const TierBlocks& tiers_up,
                                      double worthwhile) {
  std::size_t most = 1;  // as the tasks cut segments
  for (const TierBlocks* one : {&tiers, &tiers_up}) {
    for (int tier = 1; tier <= one->hops(); ++tier) {
      most = std::max(most, one->tiers[static_cast<std::size_t>(tier)].front().below.size());
    }
  }
  ClosedForm form{.segments = segments_of(bytes, static_cast<double>(most) * worthwhile)};
  Rounds up, down;
  if (tiers.sizes.empty()) {
    up = tiered_rounds(Pattern::kGiveUp, tiers_up.hops(), bytes);
    down = tiered_rounds(Pattern::kGiveDown, tiers.hops(), bytes);
  } else {
    up = tiered(tiers.sizes, bytes, true);
    down = tiered(tiers.sizes, bytes, false);
    std::ranges::reverse(down);
  }
  switch (collective) {
    case Collective::kAllReduce:
      form.rounds = up;
      form.rounds.insert(form.rounds.end(), down.begin(), down.end());
      return form;
    case Collective::kReduceScatter:
      form.rounds = up;
      return form;
    case Collective::kAllGather:
      form.rounds = down;
      return form;
    case Collective::kBroadcast:
      form.rounds = tiered_rounds(Pattern::kStar, tiers.hops(), bytes);
      return form;
    case Collective::kAllToAll:
      return tiered_all_to_all(tiers, ranks, bytes, worthwhile);
    default:
      return {};
  }
}

}  // namespace

std::optional<ClosedForm> closed_form_of(Collective collective, Algorithm algorithm, int ranks,
                                         double bytes, const TierBlocks& tiers,
                                         const TierBlocks& tiers_up, double worthwhile) {
  if (ranks == 1) return ClosedForm{};
  if (algorithm == Algorithm::kTiered) {
    return tiered_form(collective, ranks, bytes, tiers, tiers_up, worthwhile);
  }
  auto rounds = rounds_of(collective, algorithm, ranks, bytes);
  if (!rounds) return {};
  ClosedForm form{.rounds = std::move(*rounds)};
  if (algorithm == Algorithm::kRing && collective != Collective::kAllGather) {
    form.segments = segments_of(bytes, ranks * worthwhile, kRingSegments);
    form.abreast = true;
  }
  if (algorithm == Algorithm::kBinomial || algorithm == Algorithm::kChain) {
    form.segments = segments_of(bytes, worthwhile);
  }
  return form;
}

}  // namespace trireme
