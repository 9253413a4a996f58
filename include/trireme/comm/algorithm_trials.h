// Measures the algorithms that may carry the collectives of a communicator in calls that it makes
// anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithms.h"

namespace trireme {

// A collective of one size, and the algorithms to try, the one that the table names first.
struct AlgorithmTrial {
  Collective collective;
  std::size_t bytes;  // of the whole buffer
  std::vector<Algorithm> algorithms;
};

// What the trial has shown: the seconds of each algorithm, and the one to take.
struct TrialOutcome {
  AlgorithmTrial trial;
  std::vector<double> seconds;
  Algorithm chosen;
};

// All ranks of a communicator must take the same algorithm in the same call. So which one a call
// tries follows from the number of calls before it, which all ranks count alike, and never from a
// clock. The trials themselves and the measured times must be made equal on all ranks by the
// caller. Communicators call next(), and their operations took(), which may be on another thread.
class AlgorithmTrials {
 public:
  // Each algorithm carries one call in each round. The first round does not count.
  static constexpr int kRounds = 6;

  // Counts from now on what the communicator carries, and tries nothing.
  void watch();
  struct Carried {
    Collective collective;
    std::size_t bytes;
    int calls;
    double seconds;  // of all calls that have ended, on this rank
  };
  std::vector<Carried> carried() const;  // the most time first

  // Tries these from now on. Each must have an algorithm at least.
  void begin(std::vector<AlgorithmTrial> trials);
  // Neither counts nor tries from now on. Operations that have begun are still measured.
  void stop();
  // When it stopped, by now_ns(): what began earlier may have been carried by any algorithm. While
  // it tries, it is the end of time.
  std::int64_t stopped_ns() const;

  // An operation whose time is wanted, unless `slot` is negative.
  struct Call {
    int slot = -1;
    int generation = 0;
  };
  struct Choice {
    Algorithm algorithm;
    Call call;
  };
  // Returns the algorithm of the next call: `usual`, unless another one is to be tried.
  Choice next(Collective collective, std::size_t bytes, Algorithm usual);
  void took(const Call& call, std::int64_t begin_ns, std::int64_t end_ns);

  // Whether all calls of all trials have been made. The same on all ranks.
  bool all_called() const;
  // What the ranks must combine by the maximum: the begin and end of each call, on clocks that
  // agree once `clock_offset_ns` is added; then how many of the calls have not ended here.
  std::vector<std::int64_t> times(std::int64_t clock_offset_ns) const;
  // Returns what follows from times() of all ranks. An algorithm's time is the median of its calls
  // that count, each from when the last rank began to when the last one ended. The one that the
  // table names stays, unless another one is 5 % faster. Leaves out trials with calls that were not
  // made. The same on all ranks.
  std::vector<TrialOutcome> judge(const std::vector<std::int64_t>& times) const;

 private:
  struct Slot {
    std::size_t trial;
    std::int64_t begin_ns = 0, end_ns = 0;
  };
  // Returns the number of algorithms in front of that of a trial's call `number`. The order changes
  // from round to round, so that no algorithm always comes after the same other one.
  static std::size_t turn(const AlgorithmTrial& trial, std::size_t number);

  mutable std::mutex mutex_;
  enum class State { kIdle, kWatching, kTrying } state_ = State::kIdle;
  int generation_ = 0;
  std::int64_t stopped_ns_ = 0;
  std::vector<AlgorithmTrial> trials_;  // while watching, without algorithms
  std::vector<std::size_t> called_;     // calls of each
  std::vector<std::size_t> first_;      // first slot of each, where it tries
  std::vector<Slot> slots_;
};

// Writes trials as one line of text, to be sent to other ranks, and reads such a line. The reader
// throws InternalError for any other text.
std::string trials_to_text(const std::vector<AlgorithmTrial>& trials);
std::vector<AlgorithmTrial> trials_from_text(std::string_view text);

}  // namespace trireme
