#include "trireme/io/log_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/files.h"

#include "io/files/posix_file.h"

namespace trireme {

LogFile::LogFile(const std::string& path)
    : file_(std::make_unique<PosixFile>(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW)) {}

LogFile::LogFile(LogFile&& other) noexcept = default;
LogFile& LogFile::operator=(LogFile&& other) noexcept = default;
LogFile::~LogFile() = default;

void LogFile::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file_->descriptor(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_unreadable(file_->status(), file_->path(), "cannot be written", errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace trireme
