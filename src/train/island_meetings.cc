#include "train/island_meetings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/ops/elementwise.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/step_setup.h"

namespace trireme {
namespace {

constexpr const char* kIslandsAttribute = "islands";
// A JSON object: "targets", of each island a list by fragment, since their last meetings;
// "under_way", by fragment null or what is known of its meeting: "targets", and the step after
// which it "ends".
constexpr const char* kMeetingsAttribute = "meetings";
constexpr std::string_view kParametersGroup = "parameters/";
constexpr std::string_view kKeptGroup = "kept/";  // of an island
constexpr std::string_view kOptimizerGroup = "optimizer/";

std::string prefix_of(int island) {
  return fmt::format("islands/{}/", island);
}

// The checkpoint as an island reads it, or without `own_weights` with the outer weights.
Checkpoint view_of(const Checkpoint& checkpoint, int island, bool own_weights) {
  const std::string prefix = prefix_of(island);
  const auto counts = [own_weights](std::string_view name) {
    return own_weights || !name.starts_with(kParametersGroup);
  };
  return checkpoint.renamed([&](const std::string& name) {
    if (name.starts_with(prefix)) {
      const std::string own = name.substr(prefix.size());
      return counts(own) ? own : "";
    }
    if (name.starts_with("islands/")) return std::string();
    const bool replaced = counts(name) && checkpoint.contents().find(prefix + name) != nullptr;
    return replaced ? "" : name;
  });
}

// Whether a checkpoint with kMeetingsAttribute has a meeting that has not ended.
bool is_any_under_way(const CheckpointInfo& info) {
  const Json meetings = Json::parse(info.extra.at(kMeetingsAttribute));
  return std::ranges::any_of(meetings.at("under_way").items(), &Json::is_object);
}

}  // namespace

int islands_of(const CheckpointInfo& info) {
  int islands = 1;
  const auto found = info.extra.find(kIslandsAttribute);
  if (found == info.extra.end()) return islands;
  const std::string& text = found->second;
  std::from_chars(text.data(), text.data() + text.size(), islands);
  return std::max(islands, 1);
}

IslandMeetings::IslandMeetings(PreparedRun& run) : run_(run) {
  const auto rule = meeting_rule(run.config, run.model.plan);
  if (!rule || run.config.sync.is_member()) return;
  every_ = steps_between_meetings(run.config).value();
  first_ = run.config.sync.first;
  delay_ = run.config.sync.delay;
  meeting_.emplace(run.device.context, run.step, run.islands.across(), *rule);
  targets_.resize(static_cast<std::size_t>(rule->fragments));
  ends_.resize(targets_.size());
}

void IslandMeetings::begin(std::int64_t step, bool fresh) {
  step_ = step;
  if (!meeting_) return;
  if (joined()) run_.step.join_islands(&run_.islands.across());
  if (!fresh) return;
  meeting_->begin();
  equal_ = true;
}

void IslandMeetings::seen(std::int64_t targets) {
  ++step_;
  equal_ = false;
  for (std::int64_t& of_fragment : targets_) of_fragment += targets;
}

bool IslandMeetings::starts(int fragment, std::int64_t step) const {
  const std::int64_t since = step - first_ - fragment * every_ / std::ssize(ends_);
  return since > 0 && since % every_ == 0;
}

// Whether this is half way to the end.
bool IslandMeetings::turns(std::int64_t ends, std::int64_t step) const {
  return delay_ > 1 && step == ends - delay_ / 2;
}

bool IslandMeetings::due(std::int64_t step) const {
  if (!meeting_ || step < first_) return false;
  if (step == first_ || step == std::int64_t{run_.config.run.steps}) return true;
  for (int fragment = 0; fragment < std::ssize(ends_); ++fragment) {
    const auto& ends = ends_[static_cast<std::size_t>(fragment)];
    if (starts(fragment, step) || (ends && (*ends <= step || turns(*ends, step)))) return true;
  }
  return false;
}

std::vector<std::string> IslandMeetings::after(std::int64_t step) {
  std::vector<std::string> lines;
  if (step == first_) {
    run_.step.join_islands(nullptr);
    meeting_->begin();
    std::ranges::fill(targets_, 0);
    equal_ = true;
    return lines;
  }
  // The run ends with the outer weights.
  const bool last = step == std::int64_t{run_.config.run.steps};
  const float mix = last || delay_ == 0 ? 0.0f : static_cast<float>(run_.config.sync.mix);
  for (int fragment = 0; fragment < std::ssize(ends_); ++fragment) {
    auto& ends = ends_[static_cast<std::size_t>(fragment)];
    if (ends && turns(*ends, step)) meeting_->turn(fragment);
    if (!ends || (!last && *ends > step)) continue;
    meeting_->finish(fragment, mix);
    ends.reset();
  }
  for (int fragment = 0; fragment < std::ssize(ends_); ++fragment) {
    if (!last && !starts(fragment, step)) continue;
    start(fragment, step, lines);
    if (last || delay_ == 0) {
      meeting_->finish(fragment, mix);
    } else {
      ends_[static_cast<std::size_t>(fragment)] = step + delay_;
    }
  }
  equal_ = last || (delay_ == 0 && std::ssize(ends_) == 1);
  return lines;
}

void IslandMeetings::start(int fragment, std::int64_t step, std::vector<std::string>& lines) {
  std::int64_t& targets = targets_[static_cast<std::size_t>(fragment)];
  const bool counts = meeting_->start(fragment, std::exchange(targets, 0));
  std::string lost = words_on_lost(step, counts);
  if (!lost.empty()) lines.push_back(std::move(lost));
}

// Collective over the islands. `counts`: this one does.
std::string IslandMeetings::words_on_lost(std::int64_t step, bool counts) const {
  std::vector<std::int64_t> lost(static_cast<std::size_t>(run_.islands.count()));
  lost[static_cast<std::size_t>(run_.islands.index())] = counts ? 0 : 1;
  run_.islands.across().all_reduce_host(std::span(lost), ReduceOp::kMax);
  std::vector<int> islands;
  for (std::size_t i = 0; i < lost.size(); ++i) {
    if (lost[i] != 0) islands.push_back(static_cast<int>(i));
  }
  if (islands.empty()) return "";
  return fmt::format(
      "step {}: what island {} has learned is NaN or infinite and does not count; it goes on with "
      "the outer weights",
      step, fmt::join(islands, ", "));
}

void IslandMeetings::show() {
  if (meeting_ && !joined() && !equal_) meeting_->exchange();
}

void IslandMeetings::hide() {
  show();
}

void IslandMeetings::add_to(std::vector<TensorSlice>& slices, CheckpointInfo& info) {
  if (!meeting_) return;
  const Islands& islands = run_.islands;
  const bool first = islands.index() == 0;
  info.extra[kIslandsAttribute] = std::to_string(islands.count());
  // Where they are equal one island writes them for all.
  const NamePatterns& frozen = run_.step.stage().options().trained.frozen;
  const auto is_equal = [&](const std::string& name) {
    if (name.starts_with(kParametersGroup)) {
      return joined() || equal_ ||
             frozen.match(std::string_view(name).substr(kParametersGroup.size()));
    }
    return joined() && name.starts_with(kOptimizerGroup);
  };
  std::vector<TensorSlice> own = std::exchange(slices, {});
  for (TensorSlice& slice : own) {
    const bool equal = is_equal(slice.name);
    if (equal && !first) continue;
    const bool plain = first && (equal || !slice.name.starts_with(kParametersGroup));
    if (!plain) slice.name = prefix_of(islands.index()) + slice.name;
    slices.push_back(std::move(slice));
  }
  if (joined()) return;
  Json under_way = Json::array();
  for (int fragment = 0; fragment < std::ssize(ends_); ++fragment) {
    const auto& ends = ends_[static_cast<std::size_t>(fragment)];
    if (!ends) {
      under_way.push_back(Json());
      continue;
    }
    meeting_->arrive(fragment);
    under_way.push_back(Json::object({{"targets", meeting_->targets(fragment)}, {"ends", *ends}}));
  }
  std::vector<std::int64_t> all(targets_.size() * static_cast<std::size_t>(islands.count()));
  std::ranges::copy(targets_, all.begin() + std::ssize(targets_) * islands.index());
  islands.across().all_reduce_host(std::span(all), ReduceOp::kMax);
  Json targets = Json::array();
  for (const std::int64_t one : all) targets.push_back(one);
  info.extra[kMeetingsAttribute] =
      Json::object({{"targets", std::move(targets)}, {"under_way", std::move(under_way)}}).dump();
  for (TensorSlice& slice : kept_slices(run_.step.stage(), *meeting_, /*owned_only=*/true)) {
    if (slice.name.starts_with(kKeptGroup)) slice.name = prefix_of(islands.index()) + slice.name;
    slices.push_back(std::move(slice));
  }
  if (!first) return;
  for (TensorSlice& slice : outer_slices(run_.step.stage(), *meeting_, /*owned_only=*/true)) {
    if (equal_ && slice.name.starts_with(kParametersGroup)) continue;  // it is there
    slices.push_back(std::move(slice));
  }
}

// Whether the islands of a checkpoint go on each with its own. Steps of all islands (sync.first)
// need equal weights.
bool IslandMeetings::keeps_own(const CheckpointInfo& info) const {
  const bool differ = info.extra.contains(kMeetingsAttribute);
  return meeting_ && islands_of(info) == run_.islands.count() && !(differ && info.step < first_);
}

Checkpoint IslandMeetings::of_island(const Checkpoint& checkpoint) const {
  const bool own = keeps_own(checkpoint.info());
  return view_of(checkpoint, own ? run_.islands.index() : 0, own);
}

std::vector<std::string> IslandMeetings::restore(const Checkpoint& checkpoint,
                                                 std::span<const TensorSlice> slices) {
  const CheckpointInfo& info = checkpoint.info();
  const int before = islands_of(info), now = run_.islands.count();
  const bool met = info.extra.contains(kMeetingsAttribute), own = keeps_own(info);
  std::vector<std::string> lines;
  if (before > 1 && (before != now || (met && !own))) {
    take_means(checkpoint, before, slices);
    lines.push_back(fmt::format(
        "going on with {}{}: each with the outer weights, and the mean of the islands' optimizer "
        "states",
        counted(now, "island"),
        before == now ? " that have equal weights up to sync.first"
                      : fmt::format(" in place of {}", before)));
  } else if (before != now) {
    lines.push_back(fmt::format(
        "each of the {} islands begins with these weights and this optimizer state", now));
  } else if (met && !own) {
    lines.emplace_back("going on without meetings (sync.every): with the outer weights");
  }
  const bool has_outer = meeting_ && met && info.step >= first_;
  if (has_outer) read_outer(checkpoint, lines);
  if (met && !has_outer && is_any_under_way(info)) {
    lines.emplace_back("what islands had learned and was on its way is dropped");
  }
  begin(info.step, !has_outer);
  return lines;
}

// Reads the optimizer's states of all islands but the first, which are there.
void IslandMeetings::take_means(const Checkpoint& checkpoint, int islands,
                                std::span<const TensorSlice> slices) {
  ops::Context& ctx = run_.device.context;
  std::vector<TensorSlice> states, others;
  for (const TensorSlice& slice : slices) {
    if (!slice.name.starts_with(kOptimizerGroup)) continue;
    states.push_back(slice);
    others.push_back(slice);
    others.back().rounded = nullptr;
    others.back().local = ctx.allocate(slice.local.shape(), slice.local.dtype());
    ops::fill(ctx, others.back().local, 0.0f);  // the padding, which is not read
  }
  for (int island = 1; island < islands; ++island) {
    view_of(checkpoint, island, false).read(run_.grid.world(), others);
    for (std::size_t i = 0; i < states.size(); ++i) {
      ops::add(ctx, states[i].local, others[i].local, states[i].local);
    }
  }
  for (const TensorSlice& state : states) {
    ops::scale(ctx, state.local, 1.0f / static_cast<float>(islands));
  }
}

void IslandMeetings::read_outer(const Checkpoint& checkpoint, std::vector<std::string>& lines) {
  const Json meetings = Json::parse(checkpoint.info().extra.at(kMeetingsAttribute));
  const auto& under_way = meetings.at("under_way").items();
  const bool same_fragments = std::ssize(under_way) == std::ssize(ends_);
  bool dropped = false;
  for (std::size_t i = 0; i < under_way.size(); ++i) {
    if (!under_way[i].is_object()) continue;
    if (!same_fragments) {
      dropped = true;
      continue;
    }
    ends_[i] = under_way[i].at("ends").integer();
    meeting_->resume(static_cast<int>(i), under_way[i].at("targets").number());
  }
  const auto& targets = meetings.at("targets").items();
  const bool as_many = islands_of(checkpoint.info()) == run_.islands.count();
  for (std::size_t i = 0; same_fragments && as_many && i < targets_.size(); ++i) {
    targets_[i] =
        targets.at(targets_.size() * static_cast<std::size_t>(run_.islands.index()) + i).integer();
  }
  std::vector<TensorSlice> outer = outer_slices(run_.step.stage(), *meeting_, false);
  std::erase_if(outer, [&](const TensorSlice& slice) {  // sync.outer was average
    return slice.name.ends_with("/momentum") && checkpoint.contents().find(slice.name) == nullptr;
  });
  view_of(checkpoint, 0, false).read(run_.grid.world(), outer);
  read_kept(checkpoint, as_many, lines);
  const std::string own = prefix_of(0) + std::string(kParametersGroup);
  equal_ = !as_many || std::ranges::none_of(checkpoint.contents().tensors, [&](const auto& tensor) {
    return tensor.name.starts_with(own);
  });
  if (dropped) {
    lines.emplace_back(
        "what islands had learned and was on its way is dropped: sync.fragments was another");
  }
}

void IslandMeetings::read_kept(const Checkpoint& checkpoint, bool as_many,
                               std::vector<std::string>& lines) {
  if (run_.config.sync.reduce == "fp32") return;
  const Checkpoint own = view_of(checkpoint, run_.islands.index(), true);
  std::vector<TensorSlice> kept = kept_slices(run_.step.stage(), *meeting_, false);
  const bool there = as_many && std::ranges::all_of(kept, [&](const TensorSlice& slice) {
                       return own.contents().find(slice.name) != nullptr;
                     });
  if (run_.islands.across().agree(run_.grid.world().agree(there))) {
    own.read(run_.grid.world(), kept);
  } else {
    lines.emplace_back("what sync.reduce has lost so far is not known: it begins with nothing");
  }
}

}  // namespace trireme
