#include "trireme/report/chrome_trace.h"

#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

// The tracks of a rank, in the order in which a viewer shows them.
enum Track { kComputation, kWaiting, kFirstLane };

// Turns one rank's trace into events.
class Events {
 public:
  explicit Events(const TracedRank& rank) : rank_(rank) {}

  Json of(const Trace& trace) {
    metadata("process_name", 0, "name", rank_.title);
    metadata("process_sort_index", 0, "sort_index", rank_.rank);
    metadata("thread_name", kComputation, "name", "computation");
    metadata("thread_name", kWaiting, "name", "waits for communication");
    for (const Activity& activity : trace.activities) {
      const bool waits = activity.kind == Activity::Kind::kWait;
      Json arguments = Json::object();
      if (activity.number >= 0) arguments["number"] = activity.number;
      complete(activity.name, waits ? kWaiting : kComputation, activity.begin_ns, activity.end_ns,
               std::move(arguments));
    }
    for (const Operation& operation : trace.operations) {
      complete(std::string(operation.name), track_of(operation, trace), operation.begin_ns,
               operation.end_ns,
               Json::object({{"bytes", operation.bytes}, {"sequence", operation.sequence}}));
    }
    return std::move(events_);
  }

 private:
  // Operations of a communicator run one after another. Those to and from each peer form queues of
  // their own.
  int track_of(const Operation& operation, const Trace& trace) {
    const auto key = std::make_tuple(operation.lane, operation.peer, operation.sends);
    const auto [found, added] = tracks_.emplace(key, kFirstLane + static_cast<int>(tracks_.size()));
    if (added) {
      const auto lane = trace.lanes.find(operation.lane);
      std::string name = lane == trace.lanes.end() ? "communication" : lane->second.name;
      if (operation.peer >= 0) {
        name += fmt::format(" {} rank {}", operation.sends ? "to" : "from", operation.peer);
      }
      metadata("thread_name", found->second, "name", name);
    }
    return found->second;
  }

  void metadata(const std::string& name, int track, const std::string& key, const Json& value) {
    events_.push_back(Json::object({{"name", name},
                                    {"ph", "M"},
                                    {"pid", rank_.rank},
                                    {"tid", track},
                                    {"args", Json::object({{key, value}})}}));
  }

  void complete(const std::string& name, int track, std::int64_t begin_ns, std::int64_t end_ns,
                Json arguments) {
    events_.push_back(Json::object({{"name", name},
                                    {"ph", "X"},
                                    {"pid", rank_.rank},
                                    {"tid", track},
                                    {"ts", static_cast<double>(begin_ns + rank_.shift_ns) * 1e-3},
                                    {"dur", static_cast<double>(end_ns - begin_ns) * 1e-3},
                                    {"args", std::move(arguments)}}));
  }

  const TracedRank& rank_;
  Json events_ = Json::array();
  std::map<std::tuple<int, int, bool>, int> tracks_;
};

}  // namespace

Json chrome_events(const Trace& trace, const TracedRank& rank) {
  return Events(rank).of(trace);
}

ChromeTraceFile::ChromeTraceFile(const std::string& path) : file_(path) {
  file_.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
}

void ChromeTraceFile::add(const Json& events) {
  std::string text;
  for (const Json& event : events.items()) {
    text += (std::exchange(first_, false) ? "\n" : ",\n") + event.dump();
  }
  file_.write(text);
}

void ChromeTraceFile::finish() {
  file_.write("\n]}\n");
  file_.finish();
}

}  // namespace trireme
