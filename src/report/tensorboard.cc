#include "trireme/report/tensorboard.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <boost/crc.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/wall_clock.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);  // like the files

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
std::string event(std::int64_t step) {
  std::string message;
  put_tag(message, 1, kFixed64);
  put_fixed(message, unix_seconds());
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

// Returns the next record's data; nullopt at the end of the file, or if the record is damaged.
std::optional<std::string> read_record(std::ifstream& file) {
  std::string header(kHeaderBytes, '\0');
  if (!file.read(header.data(), kHeaderBytes)) return {};
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  std::memcpy(&length, header.data(), sizeof(length));
  std::memcpy(&checksum, header.data() + sizeof(length), sizeof(checksum));
  if (checksum != masked_checksum(std::string_view(header).substr(0, sizeof(length)))) return {};
  constexpr std::uint64_t kMostBytes = 1 << 20;  // our records are far smaller
  if (length > kMostBytes) return {};
  std::string data(length, '\0'), footer(kFooterBytes, '\0');
  if (!file.read(data.data(), static_cast<std::streamsize>(length))) return {};
  if (!file.read(footer.data(), kFooterBytes)) return {};
  std::memcpy(&checksum, footer.data(), sizeof(checksum));
  return checksum == masked_checksum(data) ? std::optional(std::move(data)) : std::nullopt;
}

struct Kept {
  std::uintmax_t bytes = 0;
  bool any_step = false;  // false: only the first records of a file are kept
};

// Returns how much of a file is about steps up to `step`.
Kept kept_of(const std::string& path, std::int64_t step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RunFolderError(fmt::format("{} cannot be read", path));
  Kept kept;
  while (const std::optional<std::string> data = read_record(file)) {
    const std::int64_t its = step_of(*data);
    if (its > step) break;
    kept.bytes += kHeaderBytes + data->size() + kFooterBytes;
    kept.any_step = kept.any_step || its > 0;
  }
  return kept;
}

std::vector<fs::path> event_files(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kPrefix)) files.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

// TensorBoard reads a folder's files in the order of their names, which begin with a time. The name
// of a new file sorts after the others, even if it begins in the same second.
std::string next_name(const std::string& folder) {
  auto time = static_cast<std::int64_t>(unix_seconds());
  for (const fs::path& file : event_files(folder)) {
    const std::string number = file.filename().string().substr(kPrefix.size(), 10);
    time = std::max<std::int64_t>(time, std::strtoll(number.c_str(), nullptr, 10) + 1);
  }
  return fmt::format("{}/{}{:010}.{}.{}", folder, kPrefix, time, host_name(), ::getpid());
}

}  // namespace

void cut_back_event_files(const std::string& folder, std::int64_t step) {
  for (const fs::path& path : event_files(folder)) {
    const Kept kept = kept_of(path.string(), step);
    std::error_code error;
    const bool whole = kept.bytes == fs::file_size(path, error);
    if (!error && !whole) {
      if (kept.any_step)
        fs::resize_file(path, kept.bytes, error);
      else
        fs::remove(path, error);
    }
    if (error) {
      throw RunFolderError(
          fmt::format("{} cannot be cut back: {}", path.string(), error.message()));
    }
  }
}

TensorBoardLog::TensorBoardLog(const std::string& folder, std::int64_t step,
                               const tasks::Unit& unit)
    : rate_(unit.rate_key()) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  path_ = next_name(folder);
  file_.open(path_, std::ios::binary | std::ios::trunc);
  std::string version = event(0);
  put_bytes(version, 3, "brain.Event:2");
  append(version);
  // SessionLog START: a reader that has read steps which were cut back since drops them.
  constexpr std::uint64_t kStart = 1;
  std::string status;
  put_tag(status, 1, kVarint);
  put_varint(status, kStart);
  std::string session = event(step + 1);
  put_bytes(session, 7, status);
  append(session);
}

void TensorBoardLog::write(const StepMetrics& m) {
  if (m.no_targets) return;  // nothing to draw
  write_scalars(m.step, {{"loss", m.loss},
                         {"lr", m.learning_rate},
                         {"grad_norm", m.gradient_norm},
                         {rate_, m.units_per_second},
                         {"step_s", m.step_seconds},
                         {"memory_bytes", m.memory_bytes}});
  if (m.loss_scale) write_scalars(m.step, {{"loss_scale", *m.loss_scale}});
}

void TensorBoardLog::write(const Evaluation& evaluation) {
  write_scalars(evaluation.step, {{"eval_loss", evaluation.loss}});
  if (evaluation.top1) write_scalars(evaluation.step, {{"eval_top1", *evaluation.top1}});
  if (evaluation.top5) write_scalars(evaluation.step, {{"eval_top5", *evaluation.top5}});
}

void TensorBoardLog::write_scalars(std::int64_t step, std::initializer_list<Scalar> scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_tag(value, 2, kFixed32);
    put_fixed(value, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  std::string message = event(step);
  put_bytes(message, 5, summary);
  append(message);
}

void TensorBoardLog::append(const std::string& event) {
  file_ << record(event) << std::flush;
  if (!file_) throw RunFolderError(fmt::format("{} cannot be written: is the disk full?", path_));
}

}  // namespace trireme
