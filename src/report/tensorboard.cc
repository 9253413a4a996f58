#include "trireme/report/tensorboard.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <boost/crc.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/files.h"
#include "trireme/base/node_names.h"
#include "trireme/base/wall_clock.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little);  // like the files

constexpr auto kStatus = ExitStatus::kRunFolder;
constexpr std::string_view kPrefix = "events.out.tfevents.";

template <class Value>
void put_fixed(std::string& out, Value value) {
  char bytes[sizeof(Value)];
  std::memcpy(bytes, &value, sizeof(Value));
  out.append(bytes, sizeof(Value));
}

// Protocol Buffers' wire format: each field is a tag (number and wire type) and then a value.
enum WireType : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_tag(std::string& out, std::uint64_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  put_tag(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Returns the fields that all of TensorFlow's `Event` messages share
// (tensorflow/core/util/event.proto).
std::string event(double time, std::int64_t step) {
  std::string message;
  put_tag(message, 1, kFixed64);
  put_fixed(message, time);
  put_tag(message, 2, kVarint);
  put_varint(message, static_cast<std::uint64_t>(step));
  return message;
}

// A TFRecord is a length, its checksum, the data and its checksum. A checksum is a CRC-32C that is
// rotated and offset, so that it also works for data that contains a CRC-32C itself.
std::uint32_t masked_checksum(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xA282EAD8u;
}

constexpr std::size_t kHeaderBytes = 12, kFooterBytes = 4;

std::string record(const std::string& data) {
  std::string bytes;
  put_fixed(bytes, std::uint64_t{data.size()});
  put_fixed(bytes, masked_checksum(bytes));
  bytes += data;
  put_fixed(bytes, masked_checksum(data));
  return bytes;
}

std::optional<std::uint64_t> take_varint(std::string_view& data) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !data.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(data.front());
    data.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return {};
}

// Returns the step of an event that begins with the fields of event(). A step of 0 may be left out.
std::int64_t step_of(std::string_view data) {
  constexpr std::size_t kWallTime = 1 + sizeof(double);
  if (data.size() < kWallTime + 2 || data[0] != (1 << 3 | kFixed64)) return 0;
  data.remove_prefix(kWallTime);
  if (data[0] != (2 << 3 | kVarint)) return 0;
  data.remove_prefix(1);
  return static_cast<std::int64_t>(take_varint(data).value_or(0));
}

bool read_all(FileReader& file, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t got = file.read(to, bytes);
    if (got == 0) return false;
    to += got;
    bytes -= got;
  }
  return true;
}

// Returns the next record's data; nullopt at the end of the file, or if the record is damaged.
std::optional<std::string> read_record(FileReader& file) {
  std::string header(kHeaderBytes, '\0');
  if (!read_all(file, header.data(), kHeaderBytes)) return {};
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  std::memcpy(&length, header.data(), sizeof(length));
  std::memcpy(&checksum, header.data() + sizeof(length), sizeof(checksum));
  if (checksum != masked_checksum(std::string_view(header).substr(0, sizeof(length)))) return {};
  constexpr std::uint64_t kMostBytes = 1 << 20;  // our records are far smaller
  if (length > kMostBytes) return {};
  std::string data(length, '\0'), footer(kFooterBytes, '\0');
  if (!read_all(file, data.data(), data.size())) return {};
  if (!read_all(file, footer.data(), kFooterBytes)) return {};
  std::memcpy(&checksum, footer.data(), sizeof(checksum));
  return checksum == masked_checksum(data) ? std::optional(std::move(data)) : std::nullopt;
}

struct Kept {
  std::int64_t bytes = 0;
  bool any_step = false;  // false: only the first records of a file are kept
  bool whole = false;     // all of the file
};

// Returns how much of a file is about steps up to `step`.
Kept kept_of(const std::string& path, std::int64_t step) {
  FileReader file(path, kStatus);
  Kept kept;
  while (const std::optional<std::string> data = read_record(file)) {
    const std::int64_t its = step_of(*data);
    if (its > step) break;
    kept.bytes += static_cast<std::int64_t>(kHeaderBytes + data->size() + kFooterBytes);
    kept.any_step = kept.any_step || its > 0;
  }
  kept.whole = kept.bytes == file.facts().bytes;
  return kept;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder, kStatus).value_or(std::vector<std::string>())) {
    if (name.starts_with(kPrefix)) files.push_back(folder + "/" + name);
  }
  return files;
}

// TensorBoard reads a folder's files in the order of their names, which begin with a time. The name
// of a new file sorts after the others, even if it begins in the same second.
std::string next_name(const std::string& folder) {
  auto time = static_cast<std::int64_t>(unix_seconds());
  for (const std::string& file : event_files(folder)) {
    const std::string number = file.substr(folder.size() + 1 + kPrefix.size(), 10);
    time = std::max<std::int64_t>(time, std::strtoll(number.c_str(), nullptr, 10) + 1);
  }
  return fmt::format("{}/{}{:010}.{}.{}", folder, kPrefix, time, host_name(), ::getpid());
}

// What there is a line or an event about: a step, or an evaluation after it.
using Subject = std::pair<std::int64_t, bool>;
constexpr std::string_view kLoss = "loss", kEvalLoss = "eval_loss";

void put_scalar(std::string& summary, std::string_view tag, double number) {
  std::string value;
  put_bytes(value, 1, tag);
  put_tag(value, 2, kFixed32);
  put_fixed(value, static_cast<float>(number));
  put_bytes(summary, 1, value);
}

// What the events of a folder are about.
std::set<Subject> recorded_in(const std::string& folder) {
  const auto tagged = [](std::string_view tag) {
    std::string field;
    put_bytes(field, 1, tag);
    return field;
  };
  const std::string loss = tagged(kLoss), eval_loss = tagged(kEvalLoss);
  std::set<Subject> recorded;
  for (const std::string& path : event_files(folder)) {
    FileReader file(path, kStatus);
    while (const std::optional<std::string> data = read_record(file)) {
      if (data->find(loss) != std::string::npos) recorded.emplace(step_of(*data), false);
      if (data->find(eval_loss) != std::string::npos) recorded.emplace(step_of(*data), true);
    }
  }
  return recorded;
}

std::int64_t whole_number(const Json& line, std::string_view field) {
  const Json* found = line.find(field);
  return found != nullptr && found->is_integer() ? found->integer() : 0;
}

}  // namespace

void cut_back_event_files(const std::string& folder, std::int64_t step) {
  for (const std::string& path : event_files(folder)) {
    const Kept kept = kept_of(path, step);
    if (kept.whole) continue;
    if (!kept.any_step) {
      remove_if_there(path, kStatus);
    } else if (::truncate(path.c_str(), kept.bytes) != 0) {
      throw_unreadable(kStatus, path, "cannot be cut back", errno);
    }
  }
}

TensorBoardLog::TensorBoardLog(const std::string& folder, std::int64_t step,
                               const tasks::Unit& unit, std::string_view earlier)
    : tags_{std::string(kLoss), "lr",           "grad_norm",  unit.rate_key(),
            "step_s",           "memory_bytes", "loss_scale", std::string(kEvalLoss),
            "eval_top1",        "eval_top5"} {
  make_folders(folder, kStatus);
  const double now = unix_seconds();
  std::string version = event(now, 0);
  put_bytes(version, 3, "brain.Event:2");
  // SessionLog START: a reader that has read steps which were cut back since drops them.
  constexpr std::uint64_t kStart = 1;
  std::string status;
  put_tag(status, 1, kVarint);
  put_varint(status, kStart);
  std::string session = event(now, step + 1);
  put_bytes(session, 7, status);
  const std::string text = record(version) + missing(folder, earlier) + record(session);
  file_.emplace(next_name(folder));
  file_->append(text);
}

// Returns the events of starts without event files.
std::string TensorBoardLog::missing(const std::string& folder, std::string_view earlier) const {
  const std::set<Subject> recorded = recorded_in(folder);
  std::string events;
  while (!earlier.empty()) {
    const std::size_t end = std::min(earlier.find('\n'), earlier.size() - 1);
    const Json line = Json::parse_or_null(earlier.substr(0, end));
    earlier.remove_prefix(end + 1);
    const bool of_step = line.find(kLoss) != nullptr;
    if (!of_step && line.find(kEvalLoss) == nullptr) continue;
    if (!recorded.contains({whole_number(line, "step"), !of_step})) events += events_of(line);
  }
  return events;
}

void TensorBoardLog::write(const Json& line) {
  file_->append(events_of(line));
}

std::string TensorBoardLog::events_of(const Json& line) const {
  if (line.find("no_targets") != nullptr) return {};  // nothing to draw
  std::string summary;
  for (const std::string& tag : tags_) {
    const Json* found = line.find(tag);
    if (found == nullptr) continue;
    // JSON has no word for a number that is not finite.
    put_scalar(summary, tag,
               found->is_number() ? found->number() : std::numeric_limits<double>::quiet_NaN());
  }
  const Json* time = line.find("time");
  std::string message =
      event(time != nullptr && time->is_number() ? time->number() : unix_seconds(),
            whole_number(line, "step"));
  put_bytes(message, 5, summary);
  return record(message);
}

}  // namespace trireme
