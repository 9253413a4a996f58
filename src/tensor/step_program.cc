#include "trireme/tensor/step_program.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string sizes_text(const std::array<std::int64_t, 4>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) {
    if (size == 0) break;
    text += fmt::format("{}{}", text.empty() ? "" : "x", size);
  }
  return text;
}

std::string communication_text(const StepProgram& program, std::int32_t number) {
  const ProgramCommunication& posted = program.communications[static_cast<std::size_t>(number)];
  return fmt::format(
      "{} {}{} in lane {}: {} bytes", number, program.names[static_cast<std::size_t>(posted.name)],
      posted.peer < 0 ? "" : fmt::format(" with rank {}", posted.peer), posted.lane, posted.bytes);
}

std::string entry_text(const StepProgram& program, const ProgramEntry& entry) {
  const std::string on = fmt::format("stream {}", entry.stream);
  switch (entry.kind) {
    case ProgramEntry::Kind::kCompute:
      return fmt::format("{}: {} {} {}, {:.0f} FLOP, {:.0f} bytes", on, program.name_of(entry),
                         name_of(entry.dtype), sizes_text(entry.sizes), entry.flops, entry.bytes);
    case ProgramEntry::Kind::kCopy:
      return fmt::format("{}: copy {}, {:.0f} bytes", on, program.name_of(entry), entry.bytes);
    case ProgramEntry::Kind::kPost:
      return fmt::format("{}: post {}", on, communication_text(program, entry.number));
    case ProgramEntry::Kind::kWait:
      return fmt::format("{}: wait for {}", on, communication_text(program, entry.number));
    case ProgramEntry::Kind::kMark:
      return fmt::format("{}: mark {}", on, entry.number);
    case ProgramEntry::Kind::kWaitMark:
      return fmt::format("{}: wait for mark {}", on, entry.number);
    case ProgramEntry::Kind::kWaitStream:
      return fmt::format("host: wait for {}", on);
    case ProgramEntry::Kind::kLater:
      return fmt::format("the next {} are done when they need not wait", entry.number);
    case ProgramEntry::Kind::kLook:
      return "look for what need not wait";
    case ProgramEntry::Kind::kSettle:
      return fmt::format("leave {} of what waits undone", entry.number);
    case ProgramEntry::Kind::kPhase:
      return fmt::format("phase {} {}", program.name_of(entry), entry.number);
  }
  return {};
}

}  // namespace

std::string to_text(const StepProgram& program) {
  std::string text;
  for (std::size_t i = 0; i < program.entries.size(); ++i) {
    text += fmt::format("{} {}\n", i, entry_text(program, program.entries[i]));
  }
  return text;
}

std::int32_t ProgramLog::name(std::string_view text) {
  const auto found = names_.find(text);
  if (found != names_.end()) return found->second;
  const auto number = static_cast<std::int32_t>(program_.names.size());
  program_.names.emplace_back(text);
  names_.emplace(text, number);
  return number;
}

std::int32_t ProgramLog::stream_number(const void* stream) {
  if (stream == nullptr) return 0;
  const auto next = static_cast<std::int32_t>(streams_.size()) + 1;
  return streams_.try_emplace(stream, next).first->second;
}

ProgramEntry& ProgramLog::add(ProgramEntry::Kind kind, const void* stream) {
  ProgramEntry& entry = program_.entries.emplace_back();
  entry.kind = kind;
  entry.stream = stream_number(stream);
  return entry;
}

void ProgramLog::compute(const void* stream, std::string_view operation, DType dtype,
                         const std::array<std::int64_t, 4>& sizes, double flops, double bytes) {
  ProgramEntry& entry = add(ProgramEntry::Kind::kCompute, stream);
  entry.name = name(operation);
  entry.dtype = dtype;
  entry.sizes = sizes;
  entry.flops = flops;
  entry.bytes = bytes;
}

void ProgramLog::copy(const void* stream, std::string_view kind, double bytes) {
  ProgramEntry& entry = add(ProgramEntry::Kind::kCopy, stream);
  entry.name = name(kind);
  entry.bytes = bytes;
}

PostedCommunication ProgramLog::post(const void* stream, std::string_view operation, int lane,
                                     int peer, std::size_t bytes,
                                     const PostedCommunication& together) {
  const auto number = static_cast<std::int32_t>(program_.communications.size());
  TRIREME_CHECK(together.number < 0 || together.program == program_number_,
                "an exchange is posted in one step");
  ProgramCommunication& posted = program_.communications.emplace_back();
  posted.name = name(operation);
  posted.lane = lane;
  posted.peer = peer;
  posted.first = together.number < 0 ? number : together.number;
  posted.bytes = bytes;
  ProgramEntry& entry = add(ProgramEntry::Kind::kPost, stream);
  entry.name = posted.name;
  entry.number = number;
  return {program_number_, number};
}

void ProgramLog::wait(const void* stream, const PostedCommunication& posted) {
  if (posted.program != program_number_) return;
  add(ProgramEntry::Kind::kWait, stream).number = posted.number;
}

void ProgramLog::mark(const void* stream, const void* event) {
  marks_[event] = program_.marks;
  add(ProgramEntry::Kind::kMark, stream).number = program_.marks++;
}

void ProgramLog::wait_mark(const void* stream, const void* event) {
  const auto found = marks_.find(event);
  if (found != marks_.end()) add(ProgramEntry::Kind::kWaitMark, stream).number = found->second;
}

void ProgramLog::wait_stream(const void* stream) {
  add(ProgramEntry::Kind::kWaitStream, stream);
}

void ProgramLog::begin_later() {
  later_ = program_.entries.size();
  add(ProgramEntry::Kind::kLater, nullptr);
}

void ProgramLog::end_later() {
  const std::size_t block = program_.entries.size() - later_ - 1;
  program_.entries[later_].number = static_cast<std::int32_t>(block);
}

void ProgramLog::look() {
  add(ProgramEntry::Kind::kLook, nullptr);
}

void ProgramLog::settle(std::int32_t most_undone) {
  add(ProgramEntry::Kind::kSettle, nullptr).number = most_undone;
}

void ProgramLog::phase(std::string_view text, std::int64_t number) {
  ProgramEntry& entry = add(ProgramEntry::Kind::kPhase, nullptr);
  entry.name = name(text);
  entry.number = static_cast<std::int32_t>(number);
}

StepProgram ProgramLog::take() {
  program_.streams = static_cast<int>(streams_.size()) + 1;
  names_.clear();
  marks_.clear();
  ++program_number_;
  return std::exchange(program_, {});
}

}  // namespace trireme
