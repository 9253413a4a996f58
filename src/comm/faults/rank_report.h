// What a rank reports to the judges when an operation hangs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/faults/recorder_impl.h"
#include "comm/grid/rank_list.h"

namespace trireme {

// An operation in flight.
struct WaitingFor {
  LaneKey key;
  bool library = false;      // a call into a library (FlightRecorder::Scope)
  std::string name;          // "all_reduce"
  std::string communicator;  // "tensor"
  RankList members;          // world ranks
  std::uint64_t sequence = 0;
  double age_s = 0;
};

struct RankReport {
  std::vector<WaitingFor> waiting;
  std::vector<std::pair<LaneKey, std::uint64_t>> begun;  // the last sequence number of each lane
  bool main_sleeps = false;  // whether the main thread sleeps in the kernel
};

// Makes a report. Its size depends on the lanes of the rank, not on the number of ranks of the job,
// because a list of members is encoded as runs.
RankReport make_report(const FlightRecorder::Impl::Snapshot& snapshot, bool main_sleeps);

std::string encode(const RankReport& report);
// Returns nullopt if the bytes are not a report, or if the report names ranks beyond `world`.
std::optional<RankReport> decode_report(std::string_view bytes, int world);

// What the kernel says about a thread of this process.
struct ThreadSample {
  char state = 'R';         // as in /proc/[pid]/stat
  std::int64_t cpu_ns = 0;  // processor time so far
};
ThreadSample sample_thread(int thread_id);
// Whether the thread slept from one sample to the next.
bool slept(const ThreadSample& before, const ThreadSample& after);

}  // namespace trireme
