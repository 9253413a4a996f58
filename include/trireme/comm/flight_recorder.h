// What each rank communicated last: the source of comm_s, of straggler reports and traces, and of
// the watchdog's verdicts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tensor/device.h"

namespace trireme {

class Communicator;

struct Operation {
  int lane = 0;           // Communicator::lane_id
  int peer = -1;          // world rank of a point-to-point partner; -1 for a collective
  bool sends = false;     // direction, where there is a peer
  std::string_view name;  // "all_reduce", "H5Dwrite": a string literal
  std::uint64_t sequence =
      0;  // counts the operations of this lane (and peer and direction), from 1
  std::size_t bytes = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;  // 0 while it is under way
};

// What the computing thread did from one moment to another.
struct Activity {
  enum class Kind { kCompute, kWait };  // a wait: for communication that computation needed
  Kind kind = Kind::kCompute;
  std::string name;          // "forward", or of a wait the operation: "all_reduce of tensor"
  std::int64_t number = -1;  // of a micro-batch or step; -1: none
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// All that a rank did in a stretch of time.
struct Trace {
  std::vector<Operation> operations;
  std::vector<Activity> activities;  // nested where their times are
  std::map<int, std::string> lanes;  // the names of the communicators
};

// Thread-safe. Keeps the last 1,024 finished operations and all that are under way.
class FlightRecorder {
 public:
  FlightRecorder();
  ~FlightRecorder();

  // Where a wait for communication held up the computation: exposed communication, in total.
  double exposed_seconds() const;
  void add_exposed(int lane, std::string_view operation, std::int64_t begin_ns,
                   std::int64_t end_ns);

  std::vector<Operation> under_way() const;
  std::vector<Operation> finished() const;

  // From start to take everything is kept, however much it is. On a stream of a GPU activities are
  // what the stream does, not its host: both calls wait for it, events are queued on it meanwhile,
  // so its work must not be captured, and a wait is the stream's, for communication.
  void start_trace(const Stream& stream = Stream());
  Trace take_trace();
  bool tracing() const;

  // Names what the calling thread does while it lives. Costs nothing unless a trace is being taken.
  class Phase {
   public:
    Phase(FlightRecorder& recorder, std::string_view name, std::int64_t number = -1);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    FlightRecorder& recorder_;
    std::string_view name_;
    std::int64_t number_;
    std::int64_t begin_;  // as Impl::begin_activity
  };

  // For the backends: while it lives, work that is queued on the stream will wait for an operation.
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

  // Marks a blocking call into a library (collective HDF5, say) as one operation of `comm`, so that
  // the watchdog guards it. `name` is a string literal.
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

  // For the backends: an operation begins and ends. begin numbers it within its lane.
  std::uint64_t begin(int lane, int peer, bool sends, std::string_view name, std::size_t bytes);
  void end(std::uint64_t id);

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
