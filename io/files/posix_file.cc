#include "io/files/posix_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme {
namespace {

std::int64_t free_bytes(int descriptor) {
  struct statvfs status {};
  if (::fstatvfs(descriptor, &status) != 0) return -1;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace

PosixFile::PosixFile(std::string path, int flags, ExitStatus status)
    : path_(std::move(path)), status_(status) {
  descriptor_ =
      static_cast<int>(patiently([&] { return ::open(path_.c_str(), flags | O_CLOEXEC, 0644); }));
  if (descriptor_ < 0) throw_unreadable(status_, path_, "cannot be opened", errno);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)),
      status_(other.status_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PosixFile::lose_name(std::string shown_as) {
  ::unlink(path_.c_str());
  path_ = std::move(shown_as);
}

std::int64_t PosixFile::size() const {
  struct stat status {};
  if (patiently([&] { return ::fstat(descriptor_, &status); }) != 0) {
    throw_unreadable(status_, path_, "has no readable size", errno);
  }
  return status.st_size;
}

void PosixFile::read(std::int64_t offset, void* bytes, std::size_t count) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const long got = patiently([&] { return ::pread(descriptor_, to, count, offset); });
    if (got < 0) throw_unreadable(status_, path_, "cannot be read", errno);
    if (got == 0) rethrow(status_, path_ + ": ends too early");
    to += got;
    offset += got;
    count -= static_cast<std::size_t>(got);
  }
}

void PosixFile::write(std::int64_t offset, const void* bytes, std::size_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, count, offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_unreadable(status_, path_, "cannot be written", errno);
    from += put;
    offset += put;
    count -= static_cast<std::size_t>(put);
  }
}

void PosixFile::reserve(std::int64_t bytes) {
  // Uses fallocate(2), because posix_fallocate writes every block if the file system cannot reserve
  // space. In that case we compare the free space instead.
  if (bytes == 0) return;
  const std::int64_t free = free_bytes(descriptor_);
  int reason = 0;
  do {
    reason = ::fallocate(descriptor_, 0, 0, bytes) == 0 ? 0 : errno;
  } while (reason == EINTR);
  if (reason == EOPNOTSUPP || reason == ENOSYS) {
    reason = free >= 0 && free < bytes - size() ? ENOSPC : 0;
  }
  if (reason != 0) {
    throw_unreadable(status_, path_,
                     fmt::format("no space for {} bytes ({} are free)", bytes, free), reason);
  }
}

void PosixFile::truncate(std::int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) != 0)
    throw_unreadable(status_, path_, "cannot be cut", errno);
}

void PosixFile::sync() {
  if (::fsync(descriptor_) != 0) throw_unreadable(status_, path_, "does not reach the disk", errno);
}

PosixFile make_file_anew(const std::string& path) {
  remove_if_there(path, ExitStatus::kRunFolder);
  return PosixFile(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW);
}

void sync_folder(const std::string& folder) {
  PosixFile(folder, O_RDONLY | O_DIRECTORY).sync();
}

}  // namespace trireme
