#include "trireme/base/small_file.h"

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

}  // namespace trireme
