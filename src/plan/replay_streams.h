// The streams of a replay: what hosts queue and do, and what queues of devices do.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/plan/replay.h"

#include "plan/replay_clock.h"
#include "plan/replay_communication.h"

namespace trireme::plan {

// Hosts run through their programs, and each stream through what its host has queued.
class ReplayStreams {
 public:
  ReplayStreams(const std::vector<ReplayedRank>& ranks, const ReplayCosts& costs,
                ReplayClock& clock, ReplayCommunication& communication);

  // Throws InternalError if ranks wait for each other for ever.
  void run();
  std::vector<RankTimes> times() const;
  std::vector<Trace> take_traces() const;

 private:
  static constexpr std::size_t kHost = 0;

  // What a host has queued on a stream that is not its own.
  struct Item {
    enum class Kind { kBusy, kPost, kWait, kMark, kWaitMark };
    Kind kind = Kind::kBusy;
    std::int32_t number = -1;
    std::int32_t phase = -1;  // the entry of the program that began it; -1: none
    double queued = 0.0;      // when
    // When each of several operations was queued, and the seconds that it takes.
    std::vector<std::pair<double, double>> operations = {};
  };
  struct Stream {
    std::deque<Item> items;  // what is done at the moment is no longer among them
    enum class State { kIdle, kBusy, kWaits } state = State::kIdle;
    std::int32_t waits_for = -1;  // a communication; -1: a mark
    // While it is busy: the seconds of work that are left, and its speed.
    double left = 0.0, speed = 1.0, since = 0.0;
    std::uint64_t version = 0;  // of its planned end
    RankTimes times;
    std::vector<Activity> activities;
  };
  struct Rank {
    // The entries that the host is at, of the program and, while it does one, of a block of
    // ProgramEntry::Kind::kLater: the next one and the end.
    std::vector<std::pair<std::size_t, std::size_t>> at;
    std::deque<std::pair<std::size_t, std::size_t>> later;  // the blocks that are undone
    double host = 0.0;        // how far the host has come, which may be ahead of the clock
    std::int32_t phase = -1;  // as Item::phase
    std::vector<Stream> streams;
    std::vector<double> marks;                                 // when; negative: not yet
    std::map<std::int32_t, std::vector<std::size_t>> waiting;  // streams, by mark
  };

  void run_host(std::size_t index);
  // Takes what tells which entries come next. Returns false for other entries.
  bool turn(std::size_t index, const ProgramEntry& entry);
  bool ready(std::size_t index, const std::pair<std::size_t, std::size_t>& block) const;
  // Returns false if the host does not go on now.
  bool do_on_host(std::size_t index, const ProgramEntry& entry);
  void compute_on_host(std::size_t index);
  void queue(std::size_t index, const ProgramEntry& entry);
  void run_stream(std::size_t index, std::size_t stream);
  bool start(std::size_t index, std::size_t stream, const Item& item);
  void go_on(std::size_t index, std::size_t stream);  // at this time, after what happens now

  void work(std::size_t index, std::size_t stream, double seconds, double computed,
            std::int32_t phase);
  void plan_end(std::size_t index, std::size_t stream);
  double speed_of(std::size_t index) const;
  void set_speeds(std::size_t index);
  // These return false, and make the stream wait, if it has to.
  bool wait_for_communication(std::size_t index, std::size_t stream, std::int32_t number);
  bool wait_for_mark(std::size_t index, std::size_t stream, std::int32_t mark);
  void reach(std::size_t index, std::int32_t mark);
  void add_phase(std::size_t index, Stream& stream, std::int32_t phase, double begin, double end);
  double seconds_of(std::size_t index, const ProgramEntry& entry) const;
  std::size_t computing(std::size_t index) const;  // its computing stream
  [[noreturn]] void report_deadlock(std::size_t index) const;

  const std::vector<ReplayedRank>& ranks_;
  const ReplayCosts& costs_;
  ReplayClock& clock_;
  ReplayCommunication& communication_;
  std::vector<Rank> state_;
};

}  // namespace trireme::plan
