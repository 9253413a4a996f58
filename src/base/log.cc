#include "trireme/base/log.h"

#include <atomic>
#include <cerrno>
#include <string>

#include <poll.h>
#include <unistd.h>

#include "trireme/base/printable.h"

namespace trireme {
namespace {

// These belong to the process, as its descriptors do.
std::atomic<int> output_fault{0};
std::atomic<int> line_descriptor{STDOUT_FILENO};

void write_all(int descriptor, std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {  // somebody who shares the terminal has set O_NONBLOCK
        pollfd waits{descriptor, POLLOUT, 0};
        ::poll(&waits, 1, -1);
        continue;
      }
      int none = 0;
      if (descriptor == STDOUT_FILENO) output_fault.compare_exchange_strong(none, errno);
      return;  // nobody is left to read it, or the disk is full
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
  write_all(line_descriptor, lines);
}

void print_bytes(std::string_view bytes) {
  write_all(STDOUT_FILENO, bytes);
}

void lines_to_standard_error() {
  line_descriptor = STDERR_FILENO;
}

int standard_output_fault() {
  return output_fault;
}

void report_line(std::string_view line) {
  write_all(STDERR_FILENO, "trireme: " + printable(line) + '\n');
}

}  // namespace trireme
