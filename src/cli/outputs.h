// Outputs that the user names (trireme/io/output_file.h).
#pragma once

#include <initializer_list>
#include <string_view>

namespace trireme::cli {

// Called with all outputs of a command before it prints. Where one of them is standard output (-),
// lines for people go to standard error. Throws ConfigError where several are.
void begin_outputs(std::initializer_list<std::string_view> paths);

}  // namespace trireme::cli
