// The communication of a replay: lanes, meetings of ranks, and links that messages share.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/plan/replay.h"

#include "plan/replay_clock.h"

namespace trireme::plan {

// Numbers communications of all ranks together: the two ends of a message are one, and so are the
// calls of a collective. Each rank's lanes are queues: what is at the head of its lane on every
// rank that takes part begins, waits for its latency, and flows. Flows that take the same way out
// of or into a rank, within its node or beyond, share it evenly.
class ReplayCommunication {
 public:
  ReplayCommunication(const std::vector<ReplayedRank>& ranks, const ReplayCosts& costs,
                      ReplayClock& clock);

  // Rank `index` of those that are replayed begins its communication `number` now.
  void post(std::size_t index, std::int32_t number);
  bool done(std::size_t index, std::int32_t number) const;
  // Calls `event` when it is done.
  void when_done(std::size_t index, std::int32_t number, std::function<void()> event);
  // When the part of others began, or now if it has not.
  double begun(std::size_t index, std::int32_t number) const;
  // When it came to the head of its lane here, and when it was done.
  std::pair<double, double> interval(std::size_t index, std::int32_t number) const;
  const std::string& group_name(std::size_t index, std::int32_t number) const;
  double last_end() const { return last_end_; }  // of all that is done
  // Whether anything of a rank flows, and who is told when that changes.
  bool in_flight(std::size_t index) const { return flows_of_[index] > 0; }
  void watch(std::function<void(std::size_t index)> watcher) { watcher_ = std::move(watcher); }
  // A stream of a rank begins to compute, or ends.
  void computes(std::size_t index, bool begins);
  // What a rank waits for that never comes: "all_reduce of tensor (2 of 3 ranks are there)".
  std::string describe(std::size_t index, std::int32_t number) const;

 private:
  // Where a flow goes: within a node or beyond it, out of a rank or into it.
  static constexpr std::size_t kWays = 4;
  struct End {
    std::size_t rank;     // of those that are replayed
    std::int32_t number;  // in its program
    bool out, in;         // the ways that it takes
    bool at_head = false;
    double head = 0.0;
  };
  struct Meeting {
    std::vector<End> ends;
    std::size_t expected = 1;
    std::size_t sender = 0;  // the end that sends, of a message
    bool message = false;
    CommunicationCost cost{};
    bool begun = false, flows = false, done = false;
    double start = 0.0, finish = 0.0;
    double left = 0.0, rate = 0.0, since = 0.0;  // of the flow
    std::uint64_t version = 0;                   // of its planned end
    std::vector<std::function<void()>> waiters;
  };
  // What is done at once in a lane: the messages of a fused exchange, or one communication.
  struct Entry {
    std::int32_t first;
    std::vector<std::size_t> meetings;
    std::size_t open;
  };
  struct Lane {
    std::deque<Entry> entries;
  };

  Meeting& meeting(std::size_t index, std::int32_t number) {
    return meetings_[meeting_of_[index][static_cast<std::size_t>(number)]];
  }
  const Meeting& meeting(std::size_t index, std::int32_t number) const {
    return meetings_[meeting_of_[index][static_cast<std::size_t>(number)]];
  }
  static End& end_of(Meeting& meeting, std::size_t index);
  using LaneKey = std::tuple<int, int, bool>;  // communicator, peer, sends
  LaneKey lane_key(std::size_t index, std::int32_t number) const;

  void number_meetings();
  void come_to_head(std::size_t index, const LaneKey& key);
  void try_begin(std::size_t meeting);
  void begin_flow(std::size_t meeting);
  void finish(std::size_t meeting);
  void share_ways(const Meeting& changed);
  void set_rates(std::vector<std::size_t> flows);
  void set_rate(std::size_t meeting);
  template <class Use>
  void for_ways(const Meeting& meeting, const Use& use) const;

  const std::vector<ReplayedRank>& ranks_;
  const ReplayCosts& costs_;
  ReplayClock& clock_;
  std::function<void(std::size_t)> watcher_;
  std::vector<Meeting> meetings_;
  std::vector<std::vector<std::size_t>> meeting_of_;               // [rank][number]
  std::vector<std::map<LaneKey, Lane>> lanes_;                     // [rank]
  std::vector<std::array<std::vector<std::size_t>, kWays>> ways_;  // [rank]: what flows there
  std::vector<int> flows_of_;                                      // [rank]
  std::vector<int> computing_;                                     // [rank]: streams
  double last_end_ = 0.0;
};

}  // namespace trireme::plan
