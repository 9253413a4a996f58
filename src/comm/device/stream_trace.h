// Traces what a GPU stream does, by events that are queued between its work.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

// Must be used from the thread that queues the stream's work.
class StreamTrace {
 public:
  // Waits for the stream, so that the clocks of device and host can be compared at one moment.
  explicit StreamTrace(const Stream& stream);

  bool follows(const Stream& stream) const { return stream.native() == stream_.native(); }
  // Marks the work queued so far. Returns the number of the mark, counted from 1.
  std::int64_t mark();
  // Adds an activity that lies between two marks.
  void add(Activity activity, std::int64_t begin, std::int64_t end);
  // Waits for the marks. Returns all activities, with the stream's times on the host's clock.
  std::vector<Activity> finish();

 private:
  std::int64_t time_of(std::int64_t mark) const;

  const Stream stream_;
  std::vector<std::unique_ptr<cuda::Event>> marks_;  // the first stands for origin_ns_
  std::int64_t origin_ns_ = 0;
  std::vector<Activity> activities_;  // their times are marks
};

}  // namespace trireme
