#include "io/prepare/utf16_bytes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kReadBytes = std::size_t{1} << 16;

void add_utf8(std::string& to, char32_t c) {
  const auto add = [&](char32_t byte) { to += static_cast<char>(byte); };
  const auto add_rest = [&](int shift) { add(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    add(0xe0 | c >> 12);
    add_rest(6);
  } else {
    add(0xf0 | c >> 18);
    add_rest(12);
    add_rest(6);
  }
  add_rest(0);
}

class Utf16Bytes final : public ByteStream {
 public:
  Utf16Bytes(std::string name, ByteStreamPtr stream)
      : name_(std::move(name)), stream_(std::move(stream)), units_(kReadBytes) {
    char mark[2] = {};
    stream_->read(mark, 2);
    big_ = mark[0] == '\xfe';
  }

  std::size_t read(char* to, std::size_t count) override {
    std::size_t done = 0;
    while (done < count) {
      if (at_ == text_.size() && !fill()) break;
      const std::size_t size = std::min(count - done, text_.size() - at_);
      std::copy_n(text_.data() + at_, size, to + done);
      at_ += size;
      done += size;
    }
    return done;
  }

 private:
  bool fill() {
    text_.clear();
    at_ = 0;
    while (text_.empty() && !ended_) {
      const std::size_t size = stream_->read(units_.data(), units_.size());
      ended_ = size < units_.size();
      for (std::size_t i = 0; i + 1 < size; i += 2) take(units_[i], units_[i + 1]);
      if (size % 2 != 0) refuse("a byte is missing");
      if (ended_ && high_ != 0) refuse("half of a character stands alone");
    }
    return !text_.empty();
  }

  void take(char first, char second) {
    const auto a = static_cast<unsigned char>(first), b = static_cast<unsigned char>(second);
    const char32_t unit = big_ ? char32_t{a} << 8 | b : char32_t{b} << 8 | a;
    const bool is_low = unit >= 0xdc00 && unit < 0xe000;
    if (is_low != (high_ != 0)) refuse("half of a character stands alone");
    bytes_ += 2;
    if (is_low) {
      add_utf8(text_, 0x10000 + ((high_ - 0xd800) << 10) + (unit - 0xdc00));
      high_ = 0;
    } else if (unit >= 0xd800 && unit < 0xdc00) {
      high_ = unit;
    } else {
      add_utf8(text_, unit);
    }
  }
  [[noreturn]] void refuse(std::string_view words) const {
    throw DataError(fmt::format("{}: damaged UTF-16: {} at byte {}", shown(name_), words, bytes_));
  }

  std::string name_;
  ByteStreamPtr stream_;
  std::vector<char> units_;
  bool big_ = false, ended_ = false;
  char32_t high_ = 0;  // the first half of a character
  std::uint64_t bytes_ = 2;
  std::string text_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_marked_utf16(std::string_view beginning) {
  return (beginning.starts_with("\xff\xfe"sv) && !beginning.starts_with("\xff\xfe\0\0"sv)) ||
         beginning.starts_with("\xfe\xff"sv);
}

ByteStreamPtr utf8_of_utf16(std::string name, ByteStreamPtr stream) {
  return std::make_unique<Utf16Bytes>(std::move(name), std::move(stream));
}

}  // namespace trireme
