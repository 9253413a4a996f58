// What a stream of a GPU does, told by events that are queued between its work.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

// Used from the thread that queues the stream's work.
class StreamTrace {
 public:
  // Waits for the stream, so that its clock and the host's are known to agree at one moment.
  explicit StreamTrace(const Stream& stream);

  bool follows(const Stream& stream) const { return stream.native() == stream_.native(); }
  // Marks what is queued by now; marks count from 1.
  std::int64_t mark();
  // `activity` was between two marks.
  void add(Activity activity, std::int64_t begin, std::int64_t end);
  // Waits for the marks. All activities, with the host's times of what the stream did.
  std::vector<Activity> finish();

 private:
  std::int64_t time_of(std::int64_t mark) const;

  const Stream stream_;
  std::vector<std::unique_ptr<cuda::Event>> marks_;  // the first stands for origin_ns_
  std::int64_t origin_ns_ = 0;
  std::vector<Activity> activities_;  // their times are marks
};

}  // namespace trireme
