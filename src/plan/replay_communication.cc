#include "plan/replay_communication.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

bool sends(const StepProgram& program, const ProgramCommunication& posted) {
  return program.names[static_cast<std::size_t>(posted.name)] == "send";
}

// Gives communicators of different ranks the same number if they have the same name and ranks. Of
// several such communicators of a rank the k-th is the k-th of the others.
class Communicators {
 public:
  std::map<int, int> number(const std::map<int, DryLane>& lanes) {
    std::map<int, int> numbers;
    std::map<Key, int> seen;
    for (const auto& [lane, communicator] : lanes) {
      Key key{communicator.group.name, communicator.ranks, 0};
      std::get<int>(key) = seen[key]++;
      numbers[lane] = known_.try_emplace(key, static_cast<int>(known_.size())).first->second;
    }
    return numbers;
  }

 private:
  using Key = std::tuple<std::string, std::vector<int>, int>;
  std::map<Key, int> known_;
};

}  // namespace

ReplayCommunication::ReplayCommunication(const std::vector<ReplayedRank>& ranks,
                                         const ReplayCosts& costs, ReplayClock& clock)
    : ranks_(ranks),
      costs_(costs),
      clock_(clock),
      meeting_of_(ranks.size()),
      lanes_(ranks.size()),
      ways_(ranks.size()),
      flows_of_(ranks.size()),
      computing_(ranks.size()) {
  number_meetings();
}

void ReplayCommunication::number_meetings() {
  std::map<int, std::size_t> replayed;  // by rank of the world
  for (std::size_t i = 0; i < ranks_.size(); ++i) replayed[ranks_[i].rank] = i;
  Communicators communicators;
  // A message is the k-th from one rank to the other, a collective the k-th of its communicator.
  using Key = std::tuple<int, int, int, int>;  // communicator, from, to, k
  std::map<Key, std::size_t> known;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const StepProgram& program = *ranks_[i].program;
    const std::map<int, int> numbers = communicators.number(ranks_[i].lanes);
    std::map<std::tuple<int, int, int>, int> counts;
    for (std::size_t n = 0; n < program.communications.size(); ++n) {
      const ProgramCommunication& posted = program.communications[n];
      const DryLane& lane = ranks_[i].lanes.at(posted.lane);
      const bool message = posted.peer >= 0, out = message && sends(program, posted);
      int from = -1, to = -1;
      if (message) {
        from = out ? ranks_[i].rank : posted.peer;
        to = out ? posted.peer : ranks_[i].rank;
      }
      const int communicator = numbers.at(posted.lane);
      const int k = counts[{communicator, from, to}]++;
      const auto [found, added] = known.try_emplace({communicator, from, to, k}, meetings_.size());
      if (added) {
        Meeting& made = meetings_.emplace_back();
        made.message = message;
        if (message) {
          made.expected = replayed.contains(from) && replayed.contains(to) ? 2 : 1;
        } else {
          made.expected = static_cast<std::size_t>(
              std::ranges::count_if(lane.ranks, [&](int rank) { return replayed.contains(rank); }));
        }
        made.cost = costs_.communicate(program.names[static_cast<std::size_t>(posted.name)], lane,
                                       ranks_[i].rank, posted.peer, posted.bytes);
        made.left = made.cost.flow;
      }
      Meeting& met = meetings_[found->second];
      if (out) met.sender = met.ends.size();
      met.ends.push_back({.rank = i,
                          .number = static_cast<std::int32_t>(n),
                          .out = !message || out,
                          .in = !message || !out});
      meeting_of_[i].push_back(found->second);
    }
  }
}

ReplayCommunication::End& ReplayCommunication::end_of(Meeting& meeting, std::size_t index) {
  return *std::ranges::find(meeting.ends, index, &End::rank);
}

ReplayCommunication::LaneKey ReplayCommunication::lane_key(std::size_t index,
                                                           std::int32_t number) const {
  const StepProgram& program = *ranks_[index].program;
  const ProgramCommunication& posted = program.communications[static_cast<std::size_t>(number)];
  if (costs_.in_order || posted.peer < 0) return {posted.lane, -1, false};
  return {posted.lane, posted.peer, sends(program, posted)};
}

void ReplayCommunication::post(std::size_t index, std::int32_t number) {
  const std::size_t met = meeting_of_[index][static_cast<std::size_t>(number)];
  End& end = end_of(meetings_[met], index);
  if (meetings_[met].done) {  // an early message
    end.at_head = true;
    end.head = clock_.now();
    return;
  }
  const LaneKey key = lane_key(index, number);
  Lane& lane = lanes_[index][key];
  const std::int32_t first =
      ranks_[index].program->communications[static_cast<std::size_t>(number)].first;
  const bool joins = costs_.in_order && first != number && !lane.entries.empty() &&
                     lane.entries.back().first == first;
  if (!joins) lane.entries.push_back({.first = first, .meetings = {}, .open = 0});
  lane.entries.back().meetings.push_back(met);
  ++lane.entries.back().open;
  if (lane.entries.size() == 1) come_to_head(index, key);
}

void ReplayCommunication::come_to_head(std::size_t index, const LaneKey& key) {
  // What begins may end at once and change the lane.
  const std::vector<std::size_t> meetings = lanes_[index][key].entries.front().meetings;
  for (const std::size_t met : meetings) {
    End& end = end_of(meetings_[met], index);
    if (end.at_head) continue;
    end.at_head = true;
    end.head = clock_.now();
  }
  for (const std::size_t met : meetings) try_begin(met);
}

void ReplayCommunication::try_begin(std::size_t number) {
  Meeting& met = meetings_[number];
  if (met.begun) return;
  if (met.message && costs_.eager) {
    const bool sender_there = met.ends.size() > met.sender && met.ends[met.sender].out;
    if (sender_there && !met.ends[met.sender].at_head) return;
  } else if (static_cast<std::size_t>(std::ranges::count_if(
                 met.ends, [](const End& end) { return end.at_head; })) < met.expected) {
    return;
  }
  met.begun = true;
  met.start = clock_.now();
  clock_.at(met.start + met.cost.latency, [this, number] { begin_flow(number); });
}

template <class Use>
void ReplayCommunication::for_ways(const Meeting& met, const Use& use) const {
  const std::size_t beyond = met.cost.leaves_node ? 2 : 0;
  for (const End& end : met.ends) {
    if (end.out) use(end.rank, beyond);
    if (end.in) use(end.rank, beyond + 1);
  }
}

void ReplayCommunication::begin_flow(std::size_t number) {
  Meeting& met = meetings_[number];
  if (met.left <= 0.0) return finish(number);
  met.flows = true;
  met.since = clock_.now();
  for_ways(met, [&](std::size_t rank, std::size_t way) { ways_[rank][way].push_back(number); });
  for (const End& end : met.ends) ++flows_of_[end.rank];
  share_ways(met);
  for (const End& end : met.ends) watcher_(end.rank);
}

void ReplayCommunication::share_ways(const Meeting& changed) {
  std::vector<std::size_t> flows;
  for_ways(changed, [&](std::size_t rank, std::size_t way) {
    flows.insert(flows.end(), ways_[rank][way].begin(), ways_[rank][way].end());
  });
  set_rates(std::move(flows));
}

void ReplayCommunication::computes(std::size_t index, bool begins) {
  computing_[index] += begins ? 1 : -1;
  const bool changed = computing_[index] == (begins ? 1 : 0);
  if (!changed || costs_.beside_computation == 1.0 || flows_of_[index] == 0) return;
  std::vector<std::size_t> flows;
  for (const std::vector<std::size_t>& way : ways_[index]) {
    flows.insert(flows.end(), way.begin(), way.end());
  }
  set_rates(std::move(flows));
}

void ReplayCommunication::set_rates(std::vector<std::size_t> flows) {
  std::ranges::sort(flows);
  const auto doubles = std::ranges::unique(flows);
  flows.erase(doubles.begin(), doubles.end());
  for (const std::size_t flow : flows) set_rate(flow);
}

void ReplayCommunication::set_rate(std::size_t number) {
  Meeting& met = meetings_[number];
  std::size_t most = 1;
  for_ways(met, [&](std::size_t rank, std::size_t way) {
    most = std::max(most, ways_[rank][way].size());
  });
  double rate = 1.0 / static_cast<double>(most);
  const auto computes = [&](const End& end) { return computing_[end.rank] > 0; };
  if (!met.cost.leaves_node && std::ranges::any_of(met.ends, computes)) {
    rate *= costs_.beside_computation;
  }
  if (rate == met.rate) return;
  met.left -= (clock_.now() - met.since) * met.rate;
  met.since = clock_.now();
  met.rate = rate;
  const std::uint64_t version = ++met.version;
  clock_.at(met.since + std::max(met.left, 0.0) / rate, [this, number, version] {
    if (meetings_[number].version == version) finish(number);
  });
}

void ReplayCommunication::finish(std::size_t number) {
  Meeting& met = meetings_[number];
  if (met.done) return;
  met.done = true;
  met.finish = last_end_ = clock_.now();
  ++met.version;
  if (met.flows) {
    for_ways(met, [&](std::size_t rank, std::size_t way) { std::erase(ways_[rank][way], number); });
    for (const End& end : met.ends) --flows_of_[end.rank];
    share_ways(met);
    for (const End& end : met.ends) watcher_(end.rank);
  }
  const std::vector<End> ends = met.ends;
  for (const auto& waiter : std::exchange(met.waiters, {})) waiter();
  for (const End& end : ends) {
    const LaneKey key = lane_key(end.rank, end.number);
    Lane& lane = lanes_[end.rank][key];
    if (lane.entries.empty()) continue;
    const auto entry = std::ranges::find_if(lane.entries, [&](const Entry& one) {
      return std::ranges::find(one.meetings, number) != one.meetings.end();
    });
    if (entry == lane.entries.end()) continue;  // an early message, which nobody has asked for yet
    --entry->open;
    bool moved = false;
    while (!lane.entries.empty() && lane.entries.front().open == 0) {
      lane.entries.pop_front();
      moved = true;
    }
    if (moved && !lane.entries.empty()) come_to_head(end.rank, key);
  }
}

bool ReplayCommunication::done(std::size_t index, std::int32_t number) const {
  return meeting(index, number).done;
}

void ReplayCommunication::when_done(std::size_t index, std::int32_t number,
                                    std::function<void()> event) {
  meeting(index, number).waiters.push_back(std::move(event));
}

double ReplayCommunication::begun(std::size_t index, std::int32_t number) const {
  const Meeting& met = meeting(index, number);
  return met.begun ? met.start : clock_.now();
}

std::pair<double, double> ReplayCommunication::interval(std::size_t index,
                                                        std::int32_t number) const {
  const Meeting& met = meeting(index, number);
  const End& end = *std::ranges::find(met.ends, index, &End::rank);
  return {end.head, std::max(end.head, met.finish)};
}

const std::string& ReplayCommunication::group_name(std::size_t index, std::int32_t number) const {
  const ReplayedRank& rank = ranks_[index];
  return rank.lanes.at(rank.program->communications[static_cast<std::size_t>(number)].lane)
      .group.name;
}

std::string ReplayCommunication::describe(std::size_t index, std::int32_t number) const {
  const StepProgram& program = *ranks_[index].program;
  const ProgramCommunication& posted = program.communications[static_cast<std::size_t>(number)];
  const Meeting& met = meeting(index, number);
  return fmt::format(
      "{} of {} ({} of {} replayed ranks are there)",
      program.names[static_cast<std::size_t>(posted.name)], group_name(index, number),
      std::ranges::count_if(met.ends, [](const End& end) { return end.at_head; }), met.expected);
}

}  // namespace trireme::plan
