#include "trireme/base/small_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {

std::string read_small_file(const std::string& what, const std::string& path,
                            std::size_t most_mib) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{} {}: cannot be read: {}", what, shown(path), why));
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(64 << 10, '\0');
  std::size_t size = 0;
  while (file) {
    if (size == text.size()) text.resize(2 * size);
    file.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
    size += static_cast<std::size_t>(file.gcount());
    if (size > most_mib << 20) refuse(fmt::format("it is longer than {} MiB", most_mib));
  }
  // A folder opens, and fails only when it is read.
  if (!file.eof() || errno != 0) refuse(errno != 0 ? std::strerror(errno) : "an error");
  text.resize(size);
  return text;
}

}  // namespace trireme
