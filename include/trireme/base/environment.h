// Variables of the environment.
#pragma once

#include <string>

namespace trireme {

// Returns the variable's value; empty if it is not set.
std::string environment(const char* name);

// Returns the number of seconds that the variable gives; `unless_set` where it is not set or empty.
// Throws ConfigError if it is no number from `least` to `most`.
double seconds_in_environment(const char* name, double unless_set, double least, double most);

}  // namespace trireme
