// Text from the user, and text for the user.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::cli {

// Returns `text` with \n, \t, \0, \\ and \xNN replaced by the bytes that they stand for. Throws
// ConfigError that names the flag.
std::string unescaped(std::string_view text, std::string_view flag);

// Lines "NAME VALUE", with the values below each other.
class NamedLines {
 public:
  // The names are shorter than `width`.
  explicit NamedLines(std::size_t width) : width_(width) {}

  void add(std::string_view name, std::string_view value);
  const std::string& text() const { return text_; }  // without a newline at the end

 private:
  std::size_t width_;
  std::string text_;
};

}  // namespace trireme::cli
