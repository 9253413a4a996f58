#include "posix_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string_view what, int reason) {
  throw RunFolderError(fmt::format("{}: {}: {}", path, what, std::strerror(reason)));
}

std::int64_t free_bytes(int descriptor) {
  struct statvfs status {};
  if (::fstatvfs(descriptor, &status) != 0) return -1;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace

PosixFile::PosixFile(std::string path, int flags, int mode)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), flags | O_CLOEXEC, mode)) {
  if (descriptor_ < 0) refuse(path_, "cannot be opened", errno);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t PosixFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) refuse(path_, "has no readable size", errno);
  return status.st_size;
}

void PosixFile::read(std::int64_t offset, void* bytes, std::size_t count) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, to, count, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path_, "cannot be read", errno);
    if (got == 0) throw RunFolderError(path_ + ": ends too early");
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
    if (put < 0) refuse(path_, "cannot be written", errno);
    from += put;
    offset += put;
    count -= static_cast<std::size_t>(put);
  }
}

void PosixFile::reserve(std::int64_t bytes) {
  // Uses fallocate(2), because posix_fallocate writes every block if the file system cannot reserve
  // space. In that case we compare the free space instead.
  const std::int64_t free = free_bytes(descriptor_);
  int reason = 0;
  do {
    reason = ::fallocate(descriptor_, 0, 0, bytes) == 0 ? 0 : errno;
  } while (reason == EINTR);
  if (reason == EOPNOTSUPP || reason == ENOSYS) {
    reason = free >= 0 && free < bytes - size() ? ENOSPC : 0;
  }
  if (reason != 0) {
    throw RunFolderError(fmt::format("{}: no space for {} bytes ({} are free): {}", path_, bytes,
                                     free, std::strerror(reason)));
  }
}

void PosixFile::truncate(std::int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) != 0) refuse(path_, "cannot be cut", errno);
}

void PosixFile::sync() {
  if (::fsync(descriptor_) != 0) refuse(path_, "does not reach the disk", errno);
}

void sync_folder(const std::string& folder) {
  PosixFile(folder, O_RDONLY | O_DIRECTORY).sync();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace trireme
