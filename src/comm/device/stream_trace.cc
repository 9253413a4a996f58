#include "comm/device/stream_trace.h"

#include <utility>

#include "trireme/base/clock.h"

namespace trireme {

StreamTrace::StreamTrace(const Stream& stream) : stream_(stream) {
  mark();
  marks_.front()->synchronize();
  origin_ns_ = now_ns();
}

std::int64_t StreamTrace::mark() {
  // A stream's runtime outlives the work on the stream, so the pointer need not own it.
  const std::shared_ptr<cuda::Runtime> runtime(&stream_.runtime(), [](cuda::Runtime*) {});
  marks_.push_back(std::make_unique<cuda::Event>(runtime, stream_.device().index, /*timed=*/true));
  marks_.back()->record(stream_);
  return static_cast<std::int64_t>(marks_.size()) - 1;
}

void StreamTrace::add(Activity activity, std::int64_t begin, std::int64_t end) {
  activity.begin_ns = begin;
  activity.end_ns = end;
  activities_.push_back(std::move(activity));
}

std::int64_t StreamTrace::time_of(std::int64_t mark) const {
  const double seconds = marks_[static_cast<std::size_t>(mark)]->seconds_since(*marks_.front());
  return origin_ns_ + static_cast<std::int64_t>(seconds * 1e9);
}

std::vector<Activity> StreamTrace::finish() {
  marks_.back()->synchronize();
  for (Activity& activity : activities_) {
    activity.begin_ns = time_of(activity.begin_ns);
    activity.end_ns = time_of(activity.end_ns);
  }
  return std::move(activities_);
}

}  // namespace trireme
