#include "trireme/io/output_file.h"

#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/io/locked_file.h"

#include "io/files/gone_with_signal.h"
#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr auto kOfOutput = ExitStatus::kRunFolder;
constexpr std::chrono::milliseconds kPipeReader{5'000};  // for the first reader of a pipe
constexpr int kMostLinks = 40;                           // as the system follows

[[noreturn]] void refuse(const std::string& path, int reason) {
  throw_unreadable(kOfOutput, shown(path), "cannot be written", reason);
}

bool same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_standard_output(const struct stat& facts) {
  struct stat standard {};
  return ::fstat(STDOUT_FILENO, &standard) == 0 && same(facts, standard);
}

// What the links of a name lead to, which need not exist.
std::string followed(const std::string& path) {
  std::filesystem::path target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    char next[PATH_MAX];
    const ssize_t length = ::readlink(target.c_str(), next, sizeof(next));
    if (length < 0) {
      if (errno == EINVAL || errno == ENOENT) return target.string();
      refuse(path, errno);
    }
    target = target.parent_path() / std::string(next, static_cast<std::size_t>(length));
  }
  refuse(path, ELOOP);
}

// A device, a socket or a pipe, or an open file that has no name of its own.
int open_through(const std::string& path) {
  const auto until = std::chrono::steady_clock::now() + kPipeReader;
  while (true) {
    // Opening a pipe without O_NONBLOCK waits until somebody reads from it, perhaps for ever.
    const int descriptor = static_cast<int>(patiently(
        [&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
    if (descriptor >= 0) {
      ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
      return descriptor;
    }
    if (errno != ENXIO) refuse(path, errno);
    if (std::chrono::steady_clock::now() > until) {
      throw RunFolderError(shown(path) + ": cannot be written: it is a pipe that nobody reads");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::optional<struct stat> facts_of(const std::string& path) {
  struct stat facts {};
  if (patiently([&] { return ::stat(path.c_str(), &facts); }) == 0) return facts;
  if (errno != ENOENT) refuse(path, errno);
  return {};
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path_ == "-") return;
  const std::optional<struct stat> facts = facts_of(path_);
  if (facts && is_standard_output(*facts)) return;
  if (facts && S_ISDIR(facts->st_mode)) refuse(path_, EISDIR);
  if (facts && !S_ISREG(facts->st_mode)) {
    descriptor_ = open_through(path_);
    return;
  }
  target_ = followed(path_);
  if (facts) {
    const std::optional<struct stat> named = facts_of(target_);
    if (!named || !same(*facts, *named)) {
      descriptor_ = open_through(path_);
      return;
    }
    // Renaming would replace a file that its owner has made read-only.
    if (::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) refuse(path_, errno);
  }
  const GoneWithSignal::Wait wait;
  unfinished_ = std::make_unique<LockedFile>(target_ + ".partial",
                                             shown(path_) + ": another trireme is writing it");
  gone_ = std::make_unique<GoneWithSignal>(unfinished_->path());
  unfinished_->empty();
  if (facts) unfinished_->set_mode(facts->st_mode & 07777);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(std::string_view bytes) {
  if (descriptor_ >= 0) {
    write_through(bytes);
  } else if (unfinished_) {
    unfinished_->write(static_cast<std::int64_t>(written_), bytes);
    written_ += bytes.size();
  } else {
    print_bytes(bytes);
  }
}

void OutputFile::write_through(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) refuse(path_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void OutputFile::finish() {
  if (!unfinished_) return;
  unfinished_->sync();
  unfinished_->rename(target_);
  gone_.reset();
  sync_folder(folder_above(target_));
}

void write_output(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace trireme
