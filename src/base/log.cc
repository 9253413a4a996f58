#include "trireme/base/log.h"

#include <cerrno>
#include <string>

#include <unistd.h>

namespace trireme {
namespace {

void write_line(int descriptor, std::string line) {
  line.push_back('\n');
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;  // nobody is left to read it
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void print_line(std::string_view line) {
  write_line(STDOUT_FILENO, std::string(line));
}

void report_line(std::string_view line) {
  write_line(STDERR_FILENO, std::string("trireme: ").append(line));
}

}  // namespace trireme
