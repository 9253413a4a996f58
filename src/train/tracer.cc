#include "train/tracer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/report/chrome_trace.h"

namespace trireme {
namespace {

constexpr int kRoundTrips = 8;  // to compare two clocks
constexpr std::size_t kNamedWaits = 3;

void exchange_number(Communicator& world, Transfer::Direction direction, int peer,
                     std::int64_t& number) {
  world.exchange(Stream(), {{direction, peer, Tensor::wrap(std::span(&number, 1))}}).wait_host();
}

// Called on rank 0. Returns how far its clock is ahead of the clock of `peer`, which calls
// answer_clock.
std::int64_t ask_clock(Communicator& world, int peer) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max(), offset = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    std::int64_t asked = now_ns(), theirs = 0;
    exchange_number(world, Transfer::Direction::kSend, peer, asked);
    exchange_number(world, Transfer::Direction::kReceive, peer, theirs);
    const std::int64_t answered = now_ns();
    if (answered - asked < shortest) {
      shortest = answered - asked;
      offset = asked + shortest / 2 - theirs;
    }
  }
  return offset;
}

void answer_clock(Communicator& world) {
  for (int i = 0; i < kRoundTrips; ++i) {
    std::int64_t number = 0;
    exchange_number(world, Transfer::Direction::kReceive, 0, number);
    number = now_ns();
    exchange_number(world, Transfer::Direction::kSend, 0, number);
  }
}

// Returns the seconds that a rank waited, by operation.
Json waits_of(const Trace& trace) {
  std::map<std::string, double> waits;
  for (const Activity& activity : trace.activities) {
    if (activity.kind != Activity::Kind::kWait) continue;
    waits[activity.name] += static_cast<double>(activity.end_ns - activity.begin_ns) * 1e-9;
  }
  Json object = Json::object();
  for (const auto& [name, seconds] : waits) object[name] = seconds;
  return object;
}

// Calls `use` on rank 0 with each rank's text in turn. So rank 0 never holds more than one text at
// a time.
template <class Use>
void for_each_text(Communicator& world, std::string mine, const Use& use) {
  const auto bytes_of = [](std::string& text) {
    return Tensor::wrap(text.data(), {static_cast<std::int64_t>(text.size())}, DType::kU8);
  };
  if (world.rank() == 0) use(mine);
  for (int rank = 1; rank < world.size(); ++rank) {
    if (world.rank() != 0 && world.rank() != rank) continue;
    const auto direction =
        world.rank() == 0 ? Transfer::Direction::kReceive : Transfer::Direction::kSend;
    const int peer = world.rank() == 0 ? rank : 0;
    auto size = static_cast<std::int64_t>(mine.size());
    exchange_number(world, direction, peer, size);
    mine.resize(static_cast<std::size_t>(size));
    world.exchange(Stream(), {{direction, peer, bytes_of(mine)}}).wait_host();
    if (world.rank() == 0) use(mine);
  }
}

// Writes the trace file, and finds the longest waits of all ranks.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : file_(path) {}

  void add(const Json& rank) {
    file_.add(rank.at("events"));
    for (const auto& [name, seconds] : rank.at("waits").members()) {
      double& most = waits_[name];
      most = std::max(most, seconds.number());
    }
  }

  void close() { file_.finish(); }

  std::string longest_waits() const {
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [name, seconds] : waits_) sorted.emplace_back(-seconds, name);
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() > kNamedWaits) sorted.resize(kNamedWaits);
    std::string text;
    for (const auto& [seconds, name] : sorted) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, time_text(-seconds));
    }
    return text.empty() ? "nothing" : text;
  }

 private:
  ChromeTraceFile file_;
  std::map<std::string, double> waits_;
};

}  // namespace

std::vector<std::int64_t> clock_offsets(RankRuntime& runtime) {
  Communicator& world = runtime.world();
  // The first rank of each node.
  std::vector<std::int64_t> speakers(static_cast<std::size_t>(runtime.nodes()), 0);
  const auto node = static_cast<std::size_t>(runtime.node());
  if (runtime.local_rank() == 0) speakers[node] = runtime.rank();
  world.all_reduce_host(std::span<std::int64_t>(speakers), ReduceOp::kMax);
  std::vector<std::int64_t> offsets(speakers.size(), 0);
  for (std::size_t i = 0; i < speakers.size(); ++i) {
    const int speaker = static_cast<int>(speakers[i]);
    if (speaker == 0) continue;
    if (runtime.rank() == 0) offsets[i] = ask_clock(world, speaker);
    if (runtime.rank() == speaker) answer_clock(world);
  }
  world.broadcast(Stream(), Tensor::wrap(std::span<std::int64_t>(offsets)), 0).wait_host();
  return offsets;
}

std::string Tracer::title() const {
  std::vector<std::string> place;
  for (const auto& [name, axes] : kGridDimensions) {
    place.push_back(fmt::format("{} {}", name, grid_.index(axes)));
  }
  const RankRuntime& runtime = grid_.runtime();
  return fmt::format("rank {}: {} ({})", runtime.rank(), fmt::join(place, ", "), runtime.host());
}

void Tracer::before(std::int64_t step) {
  if (begun_ != 0 || step < steps_.first || step > steps_.last) return;
  begun_ = step;
  grid_.runtime().recorder().start_trace(stream_);
  begin_ns_ = now_ns();
}

std::string Tracer::after(std::int64_t step, bool last) {
  if (begun_ == 0 && last && !written_ && grid_.runtime().rank() == 0) {
    return fmt::format("no trace: log.trace names steps {} to {}, of which this start did none",
                       steps_.first, steps_.last);
  }
  if (begun_ == 0 || (step < steps_.last && !last)) return "";
  written_ = true;
  RankRuntime& runtime = grid_.runtime();
  const Trace trace = runtime.recorder().take_trace();
  const auto offset = clock_offsets(runtime)[static_cast<std::size_t>(runtime.node())];
  std::int64_t origin = begin_ns_;  // rank 0's
  runtime.world().broadcast(Stream(), Tensor::wrap(std::span(&origin, 1)), 0).wait_host();
  Json mine;
  mine["events"] =
      chrome_events(trace, {.rank = runtime.rank(), .title = title(), .shift_ns = offset - origin});
  mine["waits"] = waits_of(trace);
  std::optional<TraceFile> file;
  if (runtime.rank() == 0) file.emplace(path_);
  for_each_text(runtime.world(), mine.dump(),
                [&](const std::string& text) { file->add(Json::parse(text)); });
  const std::int64_t first = std::exchange(begun_, 0);
  if (!file) return "";
  file->close();
  return fmt::format("trace of steps {} to {}: {}; the longest waits of any rank: {}", first, step,
                     path_, file->longest_waits());
}

}  // namespace trireme
