#include "trireme/comm/algorithm_trials.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/upper_median.h"

namespace trireme {
namespace {

// An algorithm replaces the table's if it takes less than this share of its time.
constexpr double kFaster = 0.95;

std::size_t calls_of(const AlgorithmTrial& trial) {
  return trial.algorithms.size() * static_cast<std::size_t>(AlgorithmTrials::kRounds);
}

}  // namespace

void AlgorithmTrials::watch() {
  const std::lock_guard lock(mutex_);
  state_ = State::kWatching;
  ++generation_;
  trials_.clear();
  called_.clear();
  slots_.clear();
}

std::vector<AlgorithmTrials::Carried> AlgorithmTrials::carried() const {
  const std::lock_guard lock(mutex_);
  std::vector<Carried> result;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    result.push_back({trials_[i].collective, trials_[i].bytes, static_cast<int>(called_[i]), 0.0});
  }
  for (const Slot& slot : slots_) {
    result[slot.trial].seconds += 1e-9 * static_cast<double>(slot.end_ns - slot.begin_ns);
  }
  std::ranges::stable_sort(result, std::greater<>(), &Carried::seconds);
  return result;
}

void AlgorithmTrials::begin(std::vector<AlgorithmTrial> trials) {
  const std::lock_guard lock(mutex_);
  state_ = State::kTrying;
  ++generation_;
  trials_ = std::move(trials);
  called_.assign(trials_.size(), 0);
  first_.clear();
  slots_.clear();
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    TRIREME_CHECK(!trials_[i].algorithms.empty(), "a trial without an algorithm");
    first_.push_back(slots_.size());
    slots_.resize(slots_.size() + calls_of(trials_[i]), {.trial = i});
  }
}

void AlgorithmTrials::stop() {
  const std::lock_guard lock(mutex_);
  state_ = State::kIdle;
  stopped_ns_ = now_ns();
}

std::int64_t AlgorithmTrials::stopped_ns() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kTrying ? std::numeric_limits<std::int64_t>::max() : stopped_ns_;
}

std::size_t AlgorithmTrials::turn(const AlgorithmTrial& trial, std::size_t number) {
  const std::size_t algorithms = trial.algorithms.size();
  return (number % algorithms + number / algorithms) % algorithms;
}

AlgorithmTrials::Choice AlgorithmTrials::next(Collective collective, std::size_t bytes,
                                              Algorithm usual) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kIdle) return {usual, {}};
  const auto found = std::ranges::find_if(trials_, [&](const AlgorithmTrial& trial) {
    return trial.collective == collective && trial.bytes == bytes;
  });
  const auto trial = static_cast<std::size_t>(found - trials_.begin());
  if (state_ == State::kWatching) {
    if (found == trials_.end()) {
      trials_.push_back({collective, bytes, {}});
      called_.push_back(0);
    }
    ++called_[trial];
    slots_.push_back({.trial = trial});
    return {usual, {static_cast<int>(slots_.size()) - 1, generation_}};
  }
  if (found == trials_.end() || called_[trial] == calls_of(*found)) return {usual, {}};
  const std::size_t number = called_[trial]++;
  return {found->algorithms[turn(*found, number)],
          {static_cast<int>(first_[trial] + number), generation_}};
}

void AlgorithmTrials::took(const Call& call, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  if (call.slot < 0 || call.generation != generation_) return;
  Slot& slot = slots_[static_cast<std::size_t>(call.slot)];
  slot.begin_ns = begin_ns;
  slot.end_ns = end_ns;
}

bool AlgorithmTrials::all_called() const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    if (called_[i] < calls_of(trials_[i])) return false;
  }
  return true;
}

std::vector<std::int64_t> AlgorithmTrials::times(std::int64_t clock_offset_ns) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> result;
  std::int64_t under_way = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool made = i - first_[slot.trial] < called_[slot.trial];
    if (made && slot.end_ns == 0) ++under_way;
    result.push_back(slot.begin_ns + clock_offset_ns);
    result.push_back(slot.end_ns + clock_offset_ns);
  }
  result.push_back(under_way);
  return result;
}

std::vector<TrialOutcome> AlgorithmTrials::judge(const std::vector<std::int64_t>& times) const {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(times.size() == 2 * slots_.size() + 1, "times of other trials");
  std::vector<TrialOutcome> outcomes;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const AlgorithmTrial& trial = trials_[i];
    const std::size_t algorithms = trial.algorithms.size();
    if (called_[i] < calls_of(trial)) continue;
    std::vector<std::vector<std::int64_t>> took(algorithms);
    for (std::size_t number = algorithms; number < calls_of(trial); ++number) {
      const std::size_t slot = first_[i] + number;
      // The last end less the last begin. Clocks agree to some microseconds only.
      took[turn(trial, number)].push_back(
          std::max<std::int64_t>(times[2 * slot + 1] - times[2 * slot], 1));
    }
    TrialOutcome outcome{.trial = trial, .seconds = {}, .chosen = trial.algorithms.front()};
    for (const auto& each : took) {
      outcome.seconds.push_back(1e-9 * static_cast<double>(upper_median(each)));
    }
    const auto fastest = std::ranges::min_element(outcome.seconds);
    if (*fastest < kFaster * outcome.seconds.front()) {
      outcome.chosen =
          trial.algorithms[static_cast<std::size_t>(fastest - outcome.seconds.begin())];
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::string trials_to_text(const std::vector<AlgorithmTrial>& trials) {
  Json text = Json::array();
  for (const AlgorithmTrial& trial : trials) {
    Json algorithms = Json::array();
    for (const Algorithm algorithm : trial.algorithms) {
      algorithms.push_back(static_cast<int>(algorithm));
    }
    text.push_back(Json::array(
        {static_cast<int>(trial.collective), std::uint64_t{trial.bytes}, std::move(algorithms)}));
  }
  return text.dump();
}

std::vector<AlgorithmTrial> trials_from_text(std::string_view text) {
  try {
    std::vector<AlgorithmTrial> trials;
    const Json parsed = Json::parse(text);
    for (const Json& one : parsed.items()) {
      AlgorithmTrial trial{static_cast<Collective>(one.at(0).small_integer()),
                           static_cast<std::size_t>(one.at(1).unsigned_integer()),
                           {}};
      for (const Json& algorithm : one.at(2).items()) {
        trial.algorithms.push_back(static_cast<Algorithm>(algorithm.small_integer()));
      }
      trials.push_back(std::move(trial));
    }
    return trials;
  } catch (const JsonError& error) {
    throw InternalError(fmt::format("what to try is damaged: {}", error.what()));
  }
}

}  // namespace trireme
