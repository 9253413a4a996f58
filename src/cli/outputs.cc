#include "cli/outputs.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::cli {

void begin_outputs(std::initializer_list<std::string_view> paths) {
  const auto standard = std::ranges::count(paths, "-");
  if (standard > 1) throw ConfigError("standard output (-) is given for two outputs: name a file");
  if (standard == 1) lines_to_standard_error();
}

}  // namespace trireme::cli
