#include "plan/replay_streams.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

}  // namespace

ReplayStreams::ReplayStreams(const std::vector<ReplayedRank>& ranks, const ReplayCosts& costs,
                             ReplayClock& clock, ReplayCommunication& communication)
    : ranks_(ranks),
      costs_(costs),
      clock_(clock),
      communication_(communication),
      state_(ranks.size()) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    state_[i].at = {{0, ranks[i].program->entries.size()}};
    state_[i].streams.resize(static_cast<std::size_t>(ranks[i].program->streams));
    state_[i].marks.assign(static_cast<std::size_t>(ranks[i].program->marks), -1.0);
  }
  communication_.watch([this](std::size_t index) { set_speeds(index); });
}

void ReplayStreams::run() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    clock_.at(0.0, [this, i] { run_host(i); });
  }
  while (clock_.advance()) continue;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const bool all_done = std::ranges::all_of(state_[i].streams, [](const Stream& stream) {
      return stream.state == Stream::State::kIdle && stream.items.empty();
    });
    if (!all_done || !state_[i].at.empty()) report_deadlock(i);
  }
}

double ReplayStreams::seconds_of(std::size_t index, const ProgramEntry& entry) const {
  return costs_.compute(entry, ranks_[index].program->name_of(entry));
}

void ReplayStreams::run_host(std::size_t index) {
  Rank& rank = state_[index];
  const std::vector<ProgramEntry>& entries = ranks_[index].program->entries;
  rank.host = std::max(rank.host, clock_.now());
  while (!rank.at.empty()) {
    auto& [next, end] = rank.at.back();
    if (next == end) {
      rank.at.pop_back();
      if (rank.at.empty() && !rank.later.empty()) {
        rank.at.push_back(rank.later.front());
        rank.later.pop_front();
      }
      continue;
    }
    const ProgramEntry& entry = entries[next];
    if (entry.kind == ProgramEntry::Kind::kPhase) {
      rank.phase = static_cast<std::int32_t>(next++);
      continue;
    }
    if (entry.stream != 0 && entry.kind != ProgramEntry::Kind::kWaitStream) {
      ++next;
      queue(index, entry);
      continue;
    }
    if (rank.host > clock_.now()) {
      clock_.at(rank.host, [this, index] { run_host(index); });
      return;
    }
    if (!turn(index, entry) && !do_on_host(index, entry)) return;
  }
}

bool ReplayStreams::turn(std::size_t index, const ProgramEntry& entry) {
  Rank& rank = state_[index];
  std::size_t& next = rank.at.back().first;
  const auto take_oldest = [&] {
    rank.at.push_back(rank.later.front());
    rank.later.pop_front();
  };
  switch (entry.kind) {
    case ProgramEntry::Kind::kLater: {
      const std::size_t begin = next + 1, end = begin + static_cast<std::size_t>(entry.number);
      rank.later.emplace_back(begin, end);
      next = end;
      if (ready(index, rank.later.front())) take_oldest();
      return true;
    }
    case ProgramEntry::Kind::kLook:
      if (rank.later.empty() || !ready(index, rank.later.front())) {
        ++next;
      } else {
        take_oldest();  // and then it looks again
      }
      return true;
    case ProgramEntry::Kind::kSettle:
      if (rank.later.size() <= static_cast<std::size_t>(entry.number)) {
        ++next;
      } else {
        take_oldest();
      }
      return true;
    default:
      return false;
  }
}

bool ReplayStreams::ready(std::size_t index,
                          const std::pair<std::size_t, std::size_t>& block) const {
  const std::vector<ProgramEntry>& entries = ranks_[index].program->entries;
  for (std::size_t i = block.first; i < block.second; ++i) {
    if (entries[i].kind != ProgramEntry::Kind::kWait) return true;
    if (!communication_.done(index, entries[i].number)) return false;
  }
  return true;
}

bool ReplayStreams::do_on_host(std::size_t index, const ProgramEntry& entry) {
  Rank& rank = state_[index];
  switch (entry.kind) {
    case ProgramEntry::Kind::kCompute:
    case ProgramEntry::Kind::kCopy:
      compute_on_host(index);
      return false;
    case ProgramEntry::Kind::kPost:
      ++rank.at.back().first;
      communication_.post(index, entry.number);
      return true;
    case ProgramEntry::Kind::kWait:
      ++rank.at.back().first;
      return wait_for_communication(index, kHost, entry.number);
    case ProgramEntry::Kind::kMark:
      ++rank.at.back().first;
      reach(index, entry.number);
      return true;
    case ProgramEntry::Kind::kWaitMark:
      ++rank.at.back().first;
      return wait_for_mark(index, kHost, entry.number);
    case ProgramEntry::Kind::kWaitStream: {
      ++rank.at.back().first;
      const auto stream = static_cast<std::size_t>(entry.stream);
      if (stream == kHost) return true;
      const auto mark = static_cast<std::int32_t>(rank.marks.size());
      rank.marks.push_back(-1.0);
      rank.streams[stream].items.push_back(
          {.kind = Item::Kind::kMark, .number = mark, .phase = rank.phase, .queued = rank.host});
      go_on(index, stream);
      return wait_for_mark(index, kHost, mark);
    }
    case ProgramEntry::Kind::kLater:
    case ProgramEntry::Kind::kLook:
    case ProgramEntry::Kind::kSettle:
    case ProgramEntry::Kind::kPhase:
      break;
  }
  throw InternalError("that is no work of a stream");
}

// All operations up to the next entry of another kind are one piece of work.
void ReplayStreams::compute_on_host(std::size_t index) {
  Rank& rank = state_[index];
  const std::vector<ProgramEntry>& entries = ranks_[index].program->entries;
  double seconds = 0.0;
  auto& [next, end] = rank.at.back();
  for (; next < end; ++next) {
    const ProgramEntry& entry = entries[next];
    const bool computes =
        entry.kind == ProgramEntry::Kind::kCompute || entry.kind == ProgramEntry::Kind::kCopy;
    if (!computes || entry.stream != 0) break;
    seconds += seconds_of(index, entry);
  }
  work(index, kHost, seconds, seconds, rank.phase);
}

void ReplayStreams::queue(std::size_t index, const ProgramEntry& entry) {
  Rank& rank = state_[index];
  const auto stream = static_cast<std::size_t>(entry.stream);
  std::deque<Item>& items = rank.streams[stream].items;
  Item item{.number = entry.number, .phase = rank.phase, .queued = rank.host};
  switch (entry.kind) {
    case ProgramEntry::Kind::kCompute:
    case ProgramEntry::Kind::kCopy: {
      rank.host += costs_.launch;
      const std::pair<double, double> operation{rank.host, seconds_of(index, entry)};
      if (!items.empty() && items.back().kind == Item::Kind::kBusy &&
          items.back().phase == rank.phase) {
        items.back().operations.push_back(operation);
        return;
      }
      item.queued = rank.host;
      item.operations.push_back(operation);
      break;
    }
    case ProgramEntry::Kind::kPost:
      item.kind = Item::Kind::kPost;
      break;
    case ProgramEntry::Kind::kWait:
      item.kind = Item::Kind::kWait;
      break;
    case ProgramEntry::Kind::kMark:
      item.kind = Item::Kind::kMark;
      break;
    case ProgramEntry::Kind::kWaitMark:
      item.kind = Item::Kind::kWaitMark;
      break;
    default:
      throw InternalError("a host alone does that");
  }
  const bool first = items.empty();
  items.push_back(std::move(item));
  if (first && rank.streams[stream].state == Stream::State::kIdle) go_on(index, stream);
}

void ReplayStreams::go_on(std::size_t index, std::size_t stream) {
  clock_.at(clock_.now(), [this, index, stream] {
    if (stream == kHost) {
      run_host(index);
    } else {
      run_stream(index, stream);
    }
  });
}

void ReplayStreams::run_stream(std::size_t index, std::size_t number) {
  Stream& stream = state_[index].streams[number];
  while (stream.state == Stream::State::kIdle && !stream.items.empty()) {
    if (stream.items.front().queued > clock_.now()) {
      clock_.at(stream.items.front().queued, [this, index, number] { run_stream(index, number); });
      return;
    }
    const Item item = std::move(stream.items.front());
    stream.items.pop_front();
    if (!start(index, number, item)) return;
  }
}

// Returns false if the stream does not go on now.
bool ReplayStreams::start(std::size_t index, std::size_t stream, const Item& item) {
  switch (item.kind) {
    case Item::Kind::kBusy: {
      double end = clock_.now(), computed = 0.0;
      for (const auto& [queued, seconds] : item.operations) {
        end = std::max(end, queued) + seconds;
        computed += seconds;
      }
      work(index, stream, end - clock_.now(), computed, item.phase);
      return false;
    }
    case Item::Kind::kPost:
      communication_.post(index, item.number);
      return true;
    case Item::Kind::kWait:
      return wait_for_communication(index, stream, item.number);
    case Item::Kind::kMark:
      reach(index, item.number);
      return true;
    case Item::Kind::kWaitMark:
      return wait_for_mark(index, stream, item.number);
  }
  return true;
}

void ReplayStreams::work(std::size_t index, std::size_t number, double seconds, double computed,
                         std::int32_t phase) {
  Stream& stream = state_[index].streams[number];
  stream.state = Stream::State::kBusy;
  stream.left = seconds;
  stream.since = clock_.now();
  stream.speed = speed_of(index);
  communication_.computes(index, true);
  stream.times.compute += computed;
  add_phase(index, stream, phase, clock_.now(), clock_.now() + seconds / stream.speed);
  plan_end(index, number);
}

void ReplayStreams::plan_end(std::size_t index, std::size_t number) {
  Stream& stream = state_[index].streams[number];
  const std::uint64_t version = ++stream.version;
  const double end = clock_.now() + std::max(stream.left, 0.0) / stream.speed;
  stream.times.end = end;
  clock_.at(end, [this, index, number, version] {
    Stream& ended = state_[index].streams[number];
    if (ended.version != version) return;
    ended.times.slowed += (clock_.now() - ended.since) * (1.0 - ended.speed);
    ended.state = Stream::State::kIdle;
    communication_.computes(index, false);
    go_on(index, number);
  });
}

double ReplayStreams::speed_of(std::size_t index) const {
  return communication_.in_flight(index) ? costs_.beside_communication : 1.0;
}

void ReplayStreams::set_speeds(std::size_t index) {
  const double speed = speed_of(index);
  std::vector<Stream>& streams = state_[index].streams;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    Stream& stream = streams[i];
    if (stream.state != Stream::State::kBusy || stream.speed == speed) continue;
    const double passed = clock_.now() - stream.since;
    stream.left -= passed * stream.speed;
    stream.times.slowed += passed * (1.0 - stream.speed);
    stream.since = clock_.now();
    stream.speed = speed;
    plan_end(index, i);
    if (!stream.activities.empty()) {
      stream.activities.back().end_ns = nanoseconds(stream.times.end);
    }
  }
}

bool ReplayStreams::wait_for_communication(std::size_t index, std::size_t number,
                                           std::int32_t communication) {
  if (communication_.done(index, communication)) return true;
  Stream& stream = state_[index].streams[number];
  stream.state = Stream::State::kWaits;
  stream.waits_for = communication;
  const double begin = clock_.now();
  communication_.when_done(index, communication, [this, index, number, communication, begin] {
    Stream& waited = state_[index].streams[number];
    const std::string& group = communication_.group_name(index, communication);
    const double now = clock_.now();
    const double begun = std::clamp(communication_.begun(index, communication), begin, now);
    waited.times.late[group] += begun - begin;
    waited.times.exposed[group] += now - begun;
    waited.times.end = now;
    const StepProgram& program = *ranks_[index].program;
    const ProgramCommunication& posted =
        program.communications[static_cast<std::size_t>(communication)];
    waited.activities.push_back(
        {.kind = Activity::Kind::kWait,
         .name = program.names[static_cast<std::size_t>(posted.name)] + " of " + group,
         .begin_ns = nanoseconds(begin),
         .end_ns = nanoseconds(now)});
    waited.state = Stream::State::kIdle;
    waited.waits_for = -1;
    go_on(index, number);
  });
  return false;
}

bool ReplayStreams::wait_for_mark(std::size_t index, std::size_t number, std::int32_t mark) {
  Rank& rank = state_[index];
  if (rank.marks[static_cast<std::size_t>(mark)] >= 0.0) return true;
  rank.streams[number].state = Stream::State::kWaits;
  rank.waiting[mark].push_back(number);
  return false;
}

void ReplayStreams::reach(std::size_t index, std::int32_t mark) {
  Rank& rank = state_[index];
  rank.marks[static_cast<std::size_t>(mark)] = clock_.now();
  const auto found = rank.waiting.find(mark);
  if (found == rank.waiting.end()) return;
  const std::vector<std::size_t> waiting = std::move(found->second);
  rank.waiting.erase(found);
  for (const std::size_t number : waiting) {
    rank.streams[number].state = Stream::State::kIdle;
    go_on(index, number);
  }
}

// One activity for what follows one another in a phase.
void ReplayStreams::add_phase(std::size_t index, Stream& stream, std::int32_t phase, double begin,
                              double end) {
  if (phase < 0) return;
  const StepProgram& program = *ranks_[index].program;
  const ProgramEntry& entry = program.entries[static_cast<std::size_t>(phase)];
  const std::string& name = program.name_of(entry);
  if (name.empty()) return;
  for (auto last = stream.activities.rbegin(); last != stream.activities.rend(); ++last) {
    if (last->kind == Activity::Kind::kWait) continue;
    if (last->name != name || last->number != entry.number) break;
    last->end_ns = nanoseconds(end);
    return;
  }
  stream.activities.push_back({.kind = Activity::Kind::kCompute,
                               .name = name,
                               .number = entry.number,
                               .begin_ns = nanoseconds(begin),
                               .end_ns = nanoseconds(end)});
}

std::size_t ReplayStreams::computing(std::size_t index) const {
  const std::vector<Stream>& streams = state_[index].streams;
  const auto most = std::ranges::max_element(
      streams, {}, [](const Stream& stream) { return stream.times.compute; });
  return static_cast<std::size_t>(most - streams.begin());
}

std::vector<RankTimes> ReplayStreams::times() const {
  std::vector<RankTimes> all;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    all.push_back(state_[i].streams[computing(i)].times);
    for (const Stream& stream : state_[i].streams) {
      all.back().end = std::max(all.back().end, stream.times.end);
    }
  }
  return all;
}

std::vector<Trace> ReplayStreams::take_traces() const {
  std::vector<Trace> traces(ranks_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Trace& trace = traces[i];
    const StepProgram& program = *ranks_[i].program;
    trace.activities = state_[i].streams[computing(i)].activities;
    for (const auto& [lane, communicator] : ranks_[i].lanes) {
      trace.lanes.emplace(lane, communicator.group);
    }
    std::map<std::tuple<int, int, bool>, std::uint64_t> sequences;
    for (std::size_t n = 0; n < program.communications.size(); ++n) {
      const ProgramCommunication& posted = program.communications[n];
      const std::string& name = program.names[static_cast<std::size_t>(posted.name)];
      const bool sends = posted.peer >= 0 && name == "send";
      const auto [begin, end] = communication_.interval(i, static_cast<std::int32_t>(n));
      trace.operations.push_back({.lane = posted.lane,
                                  .peer = posted.peer,
                                  .sends = sends,
                                  .name = name,
                                  .sequence = ++sequences[{posted.lane, posted.peer, sends}],
                                  .bytes = posted.bytes,
                                  .begin_ns = nanoseconds(begin),
                                  .end_ns = nanoseconds(end)});
    }
  }
  return traces;
}

void ReplayStreams::report_deadlock(std::size_t index) const {
  std::string waits;
  for (std::size_t s = 0; s < state_[index].streams.size(); ++s) {
    const Stream& stream = state_[index].streams[s];
    if (stream.state != Stream::State::kWaits) continue;
    waits += fmt::format(
        "; stream {} waits for {}", s,
        stream.waits_for < 0 ? "another stream" : communication_.describe(index, stream.waits_for));
  }
  throw InternalError(fmt::format(
      "a replayed step ends without rank {}, which is at entry {} of {}{}", ranks_[index].rank,
      state_[index].at.empty() ? ranks_[index].program->entries.size()
                               : state_[index].at.back().first,
      ranks_[index].program->entries.size(), waits));
}

}  // namespace trireme::plan
