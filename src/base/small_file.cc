#include "trireme/base/small_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr auto kWriterLimit = 5s;  // for the first writer of a pipe

class ReadableFile {
 public:
  // Opening a pipe without O_NONBLOCK waits until somebody writes to it, perhaps for ever.
  explicit ReadableFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    pipe_ = descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && S_ISFIFO(status.st_mode);
  }
  ~ReadableFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  bool good() const { return descriptor_ >= 0; }
  bool pipe() const { return pipe_; }

  // Returns the number of bytes, 0 at the end, -1 with errno. Waits while a pipe that has a writer
  // is empty.
  ssize_t read_some(char* to, std::size_t bytes) {
    while (true) {
      const ssize_t got = ::read(descriptor_, to, bytes);
      if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return got;
      wait(-1);
    }
  }
  // Whether a writer of a pipe has come and gone. Waits some milliseconds for one.
  bool hung_up() { return (wait(20) & POLLHUP) != 0; }

 private:
  short wait(int milliseconds) {
    pollfd waits{descriptor_, POLLIN, 0};
    return poll(&waits, 1, milliseconds) > 0 ? waits.revents : short{0};
  }

  int descriptor_;
  bool pipe_ = false;
};

}  // namespace

std::string read_small_file(const std::string& what, const std::string& path,
                            std::size_t most_mib) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{} {}: cannot be read: {}", what, shown(path), why));
  };
  ReadableFile file(path);
  if (!file.good()) refuse(std::strerror(errno));
  const auto writer_until = std::chrono::steady_clock::now() + kWriterLimit;
  std::string text(64 << 10, '\0');
  std::size_t size = 0;
  while (true) {
    if (size == text.size()) text.resize(2 * size);
    const ssize_t got = file.read_some(text.data() + size, text.size() - size);
    if (got < 0) refuse(std::strerror(errno));
    size += static_cast<std::size_t>(got);
    if (size > most_mib << 20) refuse(fmt::format("it is longer than {} MiB", most_mib));
    if (got > 0) continue;
    if (size > 0 || !file.pipe()) break;
    // A pipe whose writer is yet to come looks like one at its end, but does not hang up.
    if (file.hung_up()) break;
    if (std::chrono::steady_clock::now() > writer_until) {
      refuse("it is a pipe that nobody writes to");
    }
  }
  text.resize(size);
  return text;
}

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace trireme
