#include "cli/text_lines.h"

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/io/text_kind.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kMostTextBytes = std::size_t{1} << 20;

}  // namespace

std::optional<NamedText> TextLines::next() {
  while (in_ != nullptr || open_next()) {
    if (auto found = next_of_file()) return found;
  }
  return std::nullopt;
}

// Returns false after the last file.
bool TextLines::open_next() {
  if (next_ == left_.size()) return false;
  buffer_.resize(kMostTextBytes + 1);
  name_ = left_[next_++];
  line_ = 0;
  in_ = &std::cin;
  if (name_ == "-") return true;
  // Anything else that can be read will do, such as a pipe.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(name_, ignored);
  if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) {
    throw DataError(fmt::format("{}: {}; --input names files with a text on each line",
                                shown(name_),
                                std::filesystem::exists(status) ? "is a folder" : "no such file"));
  }
  file_.close();
  file_.clear();
  file_.open(name_, std::ios::binary);
  if (!file_) throw DataError(fmt::format("{}: cannot be read", shown(name_)));
  in_ = &file_;
  return true;
}

// Returns the text of the next line that is not empty; none at the end of the file.
std::optional<NamedText> TextLines::next_of_file() {
  while (in_ != nullptr) {
    in_->getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto length = static_cast<std::size_t>(in_->gcount());
    ++line_;
    const std::string name = name_ == "-" ? fmt::format("line {} of standard input", line_)
                                          : fmt::format("{}:{}", name_, line_);
    if (length + 1 == buffer_.size() && in_->fail()) {
      throw DataError(fmt::format("{}: a line of more than {} bytes", shown(name), kMostTextBytes));
    }
    if (in_->bad()) throw DataError(fmt::format("{}: cannot be read", shown(name)));
    const bool at_end = in_->eof() || in_->fail();
    // Without the newline, which getline counts and does not keep.
    std::string text(buffer_.data(), at_end || length == 0 ? length : length - 1);
    if (line_ == 1) check_is_text(name_ == "-" ? "standard input" : name_, text);
    if (text.ends_with('\r')) text.pop_back();
    if (at_end) in_ = nullptr;
    if (!text.empty()) return NamedText{name, std::move(text)};
  }
  return std::nullopt;
}

}  // namespace trireme::cli
