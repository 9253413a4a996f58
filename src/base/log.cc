#include "trireme/base/log.h"

#include <cerrno>
#include <string>

#include <unistd.h>

#include "trireme/base/printable.h"

namespace trireme {
namespace {

void write_all(int descriptor, std::string_view rest) {
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

void print_line(std::string_view text) {
  std::string lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines += printable(text.substr(0, end));
    lines += '\n';
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  write_all(STDOUT_FILENO, lines);
}

void print_bytes(std::string_view bytes) {
  write_all(STDOUT_FILENO, bytes);
}

void report_line(std::string_view line) {
  write_all(STDERR_FILENO, "trireme: " + printable(line) + '\n');
}

}  // namespace trireme
