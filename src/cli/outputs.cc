#include "cli/outputs.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"

namespace trireme::cli {

namespace {

// One spelling of a path.
std::string plain(std::string_view path) {
  return path == "-" ? "-" : std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

void begin_outputs(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    const auto is_it = [&](std::string_view other) {
      return !other.empty() && plain(other) == plain(path);
    };
    if (path.empty() || std::ranges::count_if(paths, is_it) == 1) continue;
    throw ConfigError(
        path == "-" ? "standard output (-) is given for two outputs: name a file"
                    : fmt::format("{} is given for two outputs: name two files", shown(path)));
  }
  if (std::ranges::count(paths, "-") == 1) lines_to_standard_error();
}

void keep_inputs(std::initializer_list<std::string_view> inputs,
                 std::initializer_list<std::string_view> outputs) {
  for (const std::string_view input : inputs) {
    for (const std::string_view output : outputs) {
      if (input.empty() || output.empty() || plain(input) != plain(output)) continue;
      throw ConfigError(
          fmt::format("{} is read, and given for an output: name another file", shown(output)));
    }
  }
}

NamedOutput::NamedOutput(const std::string& path) {
  if (!path.empty()) file_.emplace(path);
}

NamedOutput::NamedOutput(Runtime& runtime, const std::string& path) {
  if (path.empty()) return;
  runtime.world().read_once([&] {
    file_.emplace(path);
    return std::string();
  });
}

void NamedOutput::write(std::string_view bytes) {
  if (file_) file_->write(bytes);
}

void NamedOutput::finish() {
  if (file_) file_->finish();
}

void NamedOutput::write_whole(Runtime& runtime, std::string_view text) {
  runtime.world().read_once([&] {
    write_whole(text);
    return std::string();
  });
}

}  // namespace trireme::cli
