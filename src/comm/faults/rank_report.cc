#include "comm/faults/rank_report.h"

#include <cstring>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/kernel_files.h"

namespace trireme {
namespace {

class Writer {
 public:
  void number(std::int64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_.append(value);
  }
  void key(const LaneKey& key) {
    number(key.lane);
    number(key.peer);
    number(key.sends ? 1 : 0);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what Writer wrote. After a failure every number is 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::int64_t number() {
    std::int64_t value = 0;
    if (bytes_.size() < sizeof value) {
      fail();
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  // Reads the number of items that follow. Each item takes at least one byte.
  std::size_t count() {
    const std::int64_t value = number();
    if (value >= 0 && static_cast<std::size_t>(value) <= bytes_.size()) {
      return static_cast<std::size_t>(value);
    }
    fail();
    return 0;
  }
  std::string text() {
    const std::size_t size = count();
    std::string value(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return value;
  }
  LaneKey key() {
    LaneKey key;
    key.lane = static_cast<int>(number());
    key.peer = static_cast<int>(number());
    key.sends = number() != 0;
    return key;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// Returns nothing if the run contains a rank outside the world.
std::optional<RankList::Run> read_run(Reader& reader, int world) {
  const std::int64_t first = reader.number(), stride = reader.number(), count = reader.number();
  const auto inside = [&](std::int64_t rank) { return 0 <= rank && rank < world; };
  if (count < 1 || count > world || stride < -world || stride > world || !inside(first) ||
      !inside(first + stride * (count - 1))) {
    return std::nullopt;
  }
  return RankList::Run{static_cast<int>(first), static_cast<int>(stride), static_cast<int>(count)};
}

}  // namespace

RankReport make_report(const FlightRecorder::Impl::Snapshot& snapshot, bool main_sleeps) {
  RankReport report;
  report.main_sleeps = main_sleeps;
  report.begun.assign(snapshot.begun.begin(), snapshot.begun.end());
  const std::int64_t now = now_ns();
  for (const Operation& operation : snapshot.under_way) {
    WaitingFor waiting;
    waiting.key = {operation.lane, operation.peer, operation.sends};
    waiting.library = (operation.lane & kLibraryLaneBit) != 0;
    waiting.name = operation.name;
    waiting.sequence = operation.sequence;
    waiting.age_s = static_cast<double>(now - operation.begin_ns) * 1e-9;
    if (const auto lane = snapshot.lanes.find(operation.lane); lane != snapshot.lanes.end()) {
      waiting.communicator = lane->second.label.name;
      waiting.members = lane->second.members;
    }
    report.waiting.push_back(std::move(waiting));
  }
  return report;
}

std::string encode(const RankReport& report) {
  Writer writer;
  writer.number(report.main_sleeps ? 1 : 0);
  writer.number(static_cast<std::int64_t>(report.begun.size()));
  for (const auto& [key, sequence] : report.begun) {
    writer.key(key);
    writer.number(static_cast<std::int64_t>(sequence));
  }
  writer.number(static_cast<std::int64_t>(report.waiting.size()));
  for (const WaitingFor& waiting : report.waiting) {
    writer.key(waiting.key);
    writer.number(waiting.library ? 1 : 0);
    writer.text(waiting.name);
    writer.text(waiting.communicator);
    writer.number(static_cast<std::int64_t>(waiting.members.runs().size()));
    for (const RankList::Run& run : waiting.members.runs()) {
      writer.number(run.first);
      writer.number(run.stride);
      writer.number(run.count);
    }
    writer.number(static_cast<std::int64_t>(waiting.sequence));
    writer.number(static_cast<std::int64_t>(waiting.age_s * 1e9));
  }
  return writer.take();
}

std::optional<RankReport> decode_report(std::string_view bytes, int world) {
  Reader reader(bytes);
  RankReport report;
  report.main_sleeps = reader.number() != 0;
  for (std::size_t left = reader.count(); left > 0 && reader.ok(); --left) {
    const LaneKey key = reader.key();
    report.begun.emplace_back(key, static_cast<std::uint64_t>(reader.number()));
  }
  for (std::size_t left = reader.count(); left > 0 && reader.ok(); --left) {
    WaitingFor& waiting = report.waiting.emplace_back();
    waiting.key = reader.key();
    waiting.library = reader.number() != 0;
    waiting.name = reader.text();
    waiting.communicator = reader.text();
    for (std::size_t runs = reader.count(); runs > 0 && reader.ok(); --runs) {
      const std::optional<RankList::Run> run = read_run(reader, world);
      if (!run) return std::nullopt;
      waiting.members.add(*run);
    }
    waiting.sequence = static_cast<std::uint64_t>(reader.number());
    waiting.age_s = static_cast<double>(reader.number()) * 1e-9;
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return report;
}

ThreadSample sample_thread(int thread_id) {
  ThreadSample sample;
  const std::string folder = fmt::format("/proc/self/task/{}/", thread_id);
  const std::string line = first_line_of(folder + "stat");
  const std::size_t name_end = line.rfind(')');  // the program's name may hold anything
  if (name_end != std::string::npos && name_end + 2 < line.size())
    sample.state = line[name_end + 2];
  std::istringstream(kernel_text(folder + "schedstat")) >> sample.cpu_ns;
  return sample;
}

bool slept(const ThreadSample& before, const ThreadSample& after) {
  constexpr std::int64_t kTolerated = 1'000'000;
  return before.state != 'R' && after.state != 'R' && after.cpu_ns - before.cpu_ns < kTolerated;
}

}  // namespace trireme
