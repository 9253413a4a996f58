#include "trireme/config/step_range.h"

#include <charconv>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {

StepRange parse_step_range(std::string_view text) {
  StepRange range;
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '-') {
    result = std::from_chars(result.ptr + 1, end, range.last);
  }
  if (result.ec != std::errc() || result.ptr != end || range.first < 1 ||
      range.last < range.first) {
    throw ConfigError(fmt::format(
        "log.trace {}: expected a step, as in 12, or the first and the last of several, "
        "as in 10-12",
        shown(text)));
  }
  return range;
}

}  // namespace trireme
