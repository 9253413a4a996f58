#include "io/prepare/record_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/printable.h"

#include "io/prepare/record_source.h"

namespace trireme {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr char kEndOfDos = '\x1a';  // which programs of DOS put at the end of a text

}  // namespace

std::string list_of_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", shown(names[i], 60));
  }
  return names.size() > kMost ? list + ", ..." : list;
}

RecordBuffer::RecordBuffer(std::string name, ByteStreamPtr stream)
    : name_(std::move(name)), stream_(std::move(stream)) {
  more();
  begin_ = end_ - without_byte_order_mark(rest()).size();
}

bool RecordBuffer::more() {
  if (ended_) return false;
  const std::size_t held = end_ - begin_;
  check_size(held);
  if (begin_ > 0) std::memmove(bytes_.data(), bytes_.data() + begin_, held);
  begin_ = 0;
  end_ = held;
  if (bytes_.size() < held + kReadBytes + kPadding) {
    bytes_.resize(std::max(2 * held, kReadBytes) + kReadBytes + kPadding);
  }
  const std::size_t wanted = bytes_.size() - kPadding - held;
  const std::size_t size = stream_->read(bytes_.data() + held, wanted);
  end_ += size;
  ended_ = size < wanted;
  if (ended_ && size > 0 && rest().ends_with(kEndOfDos)) --end_;
  return end_ > held;
}

void RecordBuffer::check_size(std::size_t bytes) const {
  if (bytes > RecordSource::kMostBytes) throw DataError(words_on_long_record());
}

std::string RecordBuffer::words_on_long_record() const {
  return fmt::format("{}: a record of more than {} MiB", place(line_, column_),
                     RecordSource::kMostBytes >> 20);
}

std::string_view RecordBuffer::take(std::size_t count) {
  check_size(count);
  const std::string_view taken = rest().substr(0, count);
  pass(count);
  return taken;
}

void RecordBuffer::pass(std::size_t count) {
  const std::string_view taken = rest().substr(0, count);
  begin_ += count;
  const auto lines = static_cast<std::uint64_t>(std::ranges::count(taken, '\n'));
  line_ += lines;
  column_ = lines == 0 ? column_ + count : count - taken.rfind('\n');
}

std::string RecordBuffer::place(std::uint64_t line, std::uint64_t column) const {
  return fmt::format("{}: line {}, column {}", shown(name_), stream_->lines_before() + line,
                     column);
}

}  // namespace trireme
