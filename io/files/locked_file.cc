#include "trireme/io/locked_file.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr auto kOfLock = ExitStatus::kRunFolder;
constexpr std::int64_t kMostNoted = 1 << 20;
constexpr int kMostTries = 100;  // each ends because another process has begun or ended meanwhile

// Somebody else could make the name stand for a file of theirs or of ours.
void remove_what_is_not_ours(const std::string& path) {
  struct stat facts {};
  if (patiently([&] { return ::lstat(path.c_str(), &facts); }) != 0) {
    if (errno == ENOENT) return;
    throw_unreadable(kOfLock, path, "cannot be written", errno);
  }
  if (S_ISDIR(facts.st_mode)) throw_unreadable(kOfLock, path, "cannot be written", EISDIR);
  const bool plain = S_ISREG(facts.st_mode) && facts.st_nlink == 1 && facts.st_uid == ::geteuid();
  if (!plain) remove_if_there(path, kOfLock);
}

std::string text_of(const PosixFile& file) {
  std::string text(static_cast<std::size_t>(std::clamp<std::int64_t>(file.size(), 0, kMostNoted)),
                   '\0');
  file.read(0, text.data(), text.size());
  return text;
}

// The holder may be writing it.
std::string noted_by_holder(const PosixFile& file) {
  try {
    return text_of(file);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

LockedFile::LockedFile(const std::string& path, const std::string& busy) : path_(path) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (take(busy)) return;
  }
  throw RunFolderError(busy);
}

// False if somebody has renamed or removed the file since it was opened.
bool LockedFile::take(const std::string& busy) {
  remove_what_is_not_ours(path_);
  file_ = std::make_unique<PosixFile>(path_, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  if (::flock(file_->descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string noted = noted_by_holder(*file_);
    const std::size_t line = noted.find('\n');
    const bool told = noted.starts_with("process ") && line != std::string::npos;
    throw RunFolderError(told ? fmt::format("{} ({})", busy, shown(noted.substr(0, line))) : busy);
  }
  if (!has_its_name()) return false;
  left_ = text_of(*file_);
  return true;
}

bool LockedFile::has_its_name() const {
  struct stat own = {}, named = {};
  return ::fstat(file_->descriptor(), &own) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

LockedFile::~LockedFile() {
  if (!renamed_ && has_its_name()) ::unlink(path_.c_str());
}

void LockedFile::note(std::string_view text) {
  empty();
  write(0, fmt::format("process {} on {}\n{}", ::getpid(), host_name(), text));
}

void LockedFile::write(std::int64_t offset, std::string_view bytes) {
  file_->write(offset, bytes.data(), bytes.size());
}

void LockedFile::empty() {
  file_->truncate(0);
}

void LockedFile::sync() {
  file_->sync();
}

void LockedFile::set_mode(unsigned mode) {
  if (::fchmod(file_->descriptor(), mode) != 0) {
    throw_unreadable(kOfLock, path_, "cannot get the permissions of the file that it replaces",
                     errno);
  }
}

void LockedFile::rename(const std::string& to) {
  if (!has_its_name()) {
    throw RunFolderError(path_ + ": another program has removed or replaced it meanwhile");
  }
  rename_file(path_, to, kOfLock);
  renamed_ = true;
}

}  // namespace trireme
