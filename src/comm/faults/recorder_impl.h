// The implementation of the flight recorder, for the backends and the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/flight_recorder.h"

#include "comm/device/stream_trace.h"
#include "comm/mpi/progress_engine.h"

namespace trireme {

// Library calls are numbered separately from the operations of the same communicator that the
// progress engine carries. The two run in different threads, so their order differs from rank to
// rank.
inline constexpr int kLibraryLaneBit = 1 << 30;

// A communicator, for use in messages.
struct LaneInfo {
  GroupLabel label;
  std::vector<int> members;  // world ranks, in the communicator's order
};

class FlightRecorder::Impl {
 public:
  static constexpr std::size_t kKept = 1024;

  std::uint64_t begin(const LaneKey& key, std::string_view name, std::size_t bytes);
  void end(std::uint64_t id);
  void add_lane(int lane, LaneInfo info);

  // The state of the recorder at one moment.
  struct Snapshot {
    std::vector<Operation> under_way;
    std::map<LaneKey, std::uint64_t> begun;  // the last sequence number begun
    std::map<int, LaneInfo> lanes;
  };
  Snapshot snapshot() const;
  std::vector<Operation> under_way() const;
  std::vector<Operation> finished() const;
  // now_ns() at the beginning of the oldest operation in flight; 0 if there is none.
  std::int64_t oldest_begin_ns() const;

  // Begin and end an activity of the calling thread. begin_activity returns 0 if no trace is being
  // taken.
  std::int64_t begin_activity();
  void end_activity(Activity::Kind kind, std::string_view name, std::int64_t number,
                    std::int64_t begin) noexcept;
  bool traces(const Stream& stream) const {
    return stream_trace_ && stream_trace_->follows(stream);
  }
  // These serve a rank whose phases are watched. enter() returns the phase that was open before.
  using Watch = std::function<void(std::string_view name, std::int64_t number)>;
  const Phase* enter(const Phase& phase);
  void leave(const Phase* outer);
  void watch_phases(Watch watch) { watch_ = std::move(watch); }
  void add_wait(int lane, std::string_view operation, std::int64_t begin_ns, std::int64_t end_ns);
  void start_trace(const Stream& stream);
  Trace take_trace();

  std::atomic<std::int64_t> exposed_ns = 0;
  std::atomic<bool> tracing = false;

 private:
  mutable std::mutex mutex_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Operation> under_way_;  // by id, so the oldest comes first
  std::deque<Operation> finished_;
  std::map<LaneKey, std::uint64_t> begun_;
  std::map<int, LaneInfo> lanes_;
  Trace trace_;
  Watch watch_;
  const Phase* open_phase_ = nullptr;          // only while phases are watched
  std::unique_ptr<StreamTrace> stream_trace_;  // used by the computing thread, without a lock
};

}  // namespace trireme
