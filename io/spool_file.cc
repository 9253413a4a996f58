#include "spool_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw RunFolderError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

SpoolFile::SpoolFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail(path_, "cannot be written");
  buffer_.reserve(kBufferBytes);
}

SpoolFile::~SpoolFile() {
  ::close(descriptor_);
  ::unlink(path_.c_str());
}

void SpoolFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void SpoolFile::flush() {
  std::size_t at = 0;
  while (at < buffer_.size()) {
    const ssize_t count = ::write(descriptor_, buffer_.data() + at, buffer_.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(path_, "cannot be written");
    at += static_cast<std::size_t>(count);
  }
  written_ += buffer_.size();
  buffer_.clear();
}

void SpoolFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  flush();
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(offset + at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(path_, "cannot be read back");
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace trireme
