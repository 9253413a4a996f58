#include "cli/text_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/io/text_kind.h"

namespace trireme::cli {
namespace {

constexpr ExitStatus kOfTexts = ExitStatus::kData;
constexpr std::size_t kMostTextBytes = std::size_t{1} << 20;

}  // namespace

std::optional<NamedText> TextLines::next() {
  while (file_ || open_next()) {
    if (auto found = next_of_file()) return found;
  }
  return std::nullopt;
}

// Returns false after the last file.
bool TextLines::open_next() {
  if (next_ == left_.size()) return false;
  name_ = left_[next_++];
  line_ = 0;
  if (name_ == "-") {
    file_ = FileReader::of_descriptor("standard input", kOfTexts, STDIN_FILENO);
    return true;
  }
  const FileFacts facts = look_ahead(name_, kOfTexts);
  if (!facts.is_there() || facts.is_folder()) {
    throw DataError(fmt::format("{}: {}; --input names files with a text on each line",
                                shown(name_), facts.is_there() ? "is a folder" : "no such file"));
  }
  file_.emplace(name_, kOfTexts);  // a pipe will do, too
  return true;
}

// Returns the text of the next line that is not empty; none at the end of the file.
std::optional<NamedText> TextLines::next_of_file() {
  std::string text;
  while (file_->line(text, nullptr, kMostTextBytes)) {
    ++line_;
    const std::string name = name_ == "-" ? fmt::format("line {} of standard input", line_)
                                          : fmt::format("{}:{}", name_, line_);
    if (text.size() > kMostTextBytes) {
      throw DataError(fmt::format("{}: a line of more than {} bytes", shown(name), kMostTextBytes));
    }
    if (line_ == 1) check_is_text(name_ == "-" ? "standard input" : name_, text);
    check_has_no_zero(name, text);
    if (line_ == 1) text.erase(0, text.size() - without_byte_order_mark(text).size());
    if (text.ends_with('\r')) text.pop_back();
    if (!text.empty()) return NamedText{name, std::move(text)};
  }
  file_.reset();
  return std::nullopt;
}

}  // namespace trireme::cli
