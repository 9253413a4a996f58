#include "trireme/base/small_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme {

std::string read_small_file(const std::string& what, const std::string& path,
                            std::size_t most_mib) {
  try {
    return std::string(
        without_byte_order_mark(read_file(path, ExitStatus::kUsage, most_mib << 20)));
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{} {}", what, error.what()), error.cause());
  }
}

std::vector<FileLine> lines_of_small_file(std::string_view text) {
  std::vector<FileLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    lines.push_back({std::string(line), number});
  }
  return lines;
}

}  // namespace trireme
