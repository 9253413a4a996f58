#include "trireme/base/environment.h"

#include <cstdlib>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

double seconds_in_environment(const char* name, double unless_set, double least, double most) {
  const std::string text = environment(name);
  if (text.empty()) return unless_set;
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(seconds >= least) || seconds > most) {
    throw ConfigError(fmt::format("{}={}: must be a number of seconds from {:.15g} to {:.15g}",
                                  name, text, least, most));
  }
  return seconds;
}

}  // namespace trireme
