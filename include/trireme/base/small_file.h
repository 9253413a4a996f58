// Small files that a user names: settings, templates and tokenizers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Returns the contents of a file of at most `most_mib` MiB, without a byte order mark before them,
// and reads no more than that of a longer one. The file may be a pipe, which is read until its
// writer ends; one that nobody opens for writing within 5 s is refused. Throws ConfigError: "WHAT
// PATH: cannot be read: why".
std::string read_small_file(const std::string& what, const std::string& path,
                            std::size_t most_mib = 16);

// A line of such a file, without the comment that a # begins and the white space around it.
struct FileLine {
  std::string text;
  int number;  // the first line of the file is 1
};
// Returns the lines that hold something.
std::vector<FileLine> lines_of_small_file(std::string_view text);

}  // namespace trireme
