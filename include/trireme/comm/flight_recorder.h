// The last communication of each rank. It is the source of comm_s, of straggler reports and traces,
// and of the watchdog's verdicts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/group_label.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/profiler_range.h"

namespace trireme {

class Communicator;

struct Operation {
  int lane = 0;        // Communicator::lane_id
  int peer = -1;       // world rank of a point-to-point partner; -1 for a collective
  bool sends = false;  // the direction; only with a peer
  std::string name;    // "all_reduce", "H5Dwrite"
  std::uint64_t sequence =
      0;  // counts the operations of this lane (and peer and direction), from 1
  std::size_t bytes = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;  // 0 while it is in flight
};

// What the computing thread did in one interval.
struct Activity {
  enum class Kind { kCompute, kWait };  // kWait: for communication that the computation needed
  Kind kind = Kind::kCompute;
  std::string name;          // "forward"; for a wait, the operation: "all_reduce of tensor"
  std::int64_t number = -1;  // the micro-batch or step; -1: none
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Everything that a rank did while a trace was taken.
struct Trace {
  std::vector<Operation> operations;
  std::vector<Activity> activities;  // nested as their times are
  std::map<int, GroupLabel> lanes;   // the communicators
};

// Thread-safe. Keeps the last 1,024 finished operations and all that are in flight.
class FlightRecorder {
 public:
  FlightRecorder();
  ~FlightRecorder();

  // The total time for which the computation waited for communication (exposed communication).
  double exposed_seconds() const;
  void add_exposed(int lane, std::string_view operation, std::int64_t begin_ns,
                   std::int64_t end_ns);

  std::vector<Operation> under_way() const;
  std::vector<Operation> finished() const;

  // Between start_trace and take_trace everything is kept, without a limit. With a GPU stream, the
  // activities are what the stream does, not what the host does, and a wait is the stream's wait
  // for communication. Both calls then wait for the stream. Events are queued on it in between, so
  // its work must not be captured.
  void start_trace(const Stream& stream = Stream());
  Trace take_trace();
  bool tracing() const;

  // Calls `watch` with the name and number of each Phase when it begins, and with those of the
  // enclosing phase (or with "" and -1) when it ends. Only for a rank on which one thread has
  // phases.
  void watch_phases(std::function<void(std::string_view name, std::int64_t number)> watch);

  // Names what the calling thread does during the object's lifetime. Costs nothing unless a trace
  // is being taken, phases are watched or a profiler is attached.
  class Phase {
   public:
    Phase(FlightRecorder& recorder, std::string_view name, std::int64_t number = -1);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    friend class FlightRecorder;  // and so its Impl
    FlightRecorder& recorder_;
    std::string_view name_;
    std::int64_t number_;
    std::int64_t begin_;  // see Impl::begin_activity
    const Phase* outer_;  // see Impl::enter
    ProfilerRange range_;
  };

  // Backends make one. During its lifetime, the backend queues on the stream what makes later work
  // wait for an operation.
  class StreamWait {
   public:
    StreamWait(FlightRecorder& recorder, const Stream& stream);
    ~StreamWait();
    StreamWait(const StreamWait&) = delete;
    StreamWait& operator=(const StreamWait&) = delete;

   private:
    FlightRecorder& recorder_;
    std::int64_t begin_;
  };

  // Marks a blocking call into a library (for example collective HDF5) as one operation of `comm`,
  // so that the watchdog guards it. `name` is a string literal.
  class Scope {
   public:
    Scope(FlightRecorder& recorder, const Communicator& comm, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    FlightRecorder& recorder_;
    std::uint64_t id_;
  };

  // For the backends: an operation begins or ends. begin() numbers it within its lane and returns
  // its id for end().
  std::uint64_t begin(int lane, int peer, bool sends, std::string_view name, std::size_t bytes);
  void end(std::uint64_t id);

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
