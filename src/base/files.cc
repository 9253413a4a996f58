#include "trireme/base/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000}, kMostPatience{3'600'000};
constexpr milliseconds kPipeWriter{5'000};  // for the first writer of a pipe
constexpr std::size_t kBlock = std::size_t{64} << 10;

milliseconds patience_in_environment() {
  return milliseconds(static_cast<std::int64_t>(
      1e3 * seconds_in_environment("TRIREME_FILE_PATIENCE", kPatience.count() / 1e3, 0, 3600)));
}

std::atomic<std::int64_t> most_patience_ms{kMostPatience.count()};

bool passes_by_itself(int reason) {
  return reason == EIO || reason == ESTALE;
}

int stat_patiently(const std::string& path, struct stat& status) {
  return static_cast<int>(patiently([&] { return ::stat(path.c_str(), &status); }));
}

FileFacts facts_of(const struct stat& status) {
  FileFacts facts;
  facts.kind = S_ISREG(status.st_mode)    ? FileKind::kFile
               : S_ISDIR(status.st_mode)  ? FileKind::kFolder
               : S_ISFIFO(status.st_mode) ? FileKind::kPipe
                                          : FileKind::kOther;
  facts.bytes = status.st_size;
  facts.changed_ns = std::int64_t{1'000'000'000} * status.st_mtim.tv_sec + status.st_mtim.tv_nsec;
  facts.device = status.st_dev;
  facts.number = status.st_ino;
  return facts;
}

// Call it after ENOENT. Returns whether the name may be made; throws where the system's answer says
// nothing of it.
bool is_absent(const std::string& path, ExitStatus status, bool folders_too) {
  struct stat facts {};
  if (patiently([&] { return ::lstat(path.c_str(), &facts); }) == 0 && S_ISLNK(facts.st_mode)) {
    throw_unreadable(status, path, "it is a link, and what it names does not exist", ENOENT);
  }
  const std::string above = folder_above(path);
  if (stat_patiently(above, facts) == 0) return true;
  if (errno != ENOENT) throw_unreadable(status, path, "cannot be read", errno);
  if (folders_too) return above == path || is_absent(above, status, true);
  throw_unreadable(status, path, "its folder does not exist", ENOENT);
}

FileFacts look(const std::string& path, ExitStatus status, bool folders_too) {
  struct stat facts {};
  if (stat_patiently(path, facts) == 0) return facts_of(facts);
  if (errno != ENOENT) throw_unreadable(status, path, "cannot be read", errno);
  is_absent(path, status, folders_too);
  return {};
}

// A descriptor, or -1 where the file is absent and may be.
int open_to_read(const std::string& path, ExitStatus status, bool may_be_absent) {
  // Opening a pipe without O_NONBLOCK waits until somebody writes to it, perhaps for ever.
  const int descriptor = static_cast<int>(patiently(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
  if (descriptor >= 0) return descriptor;
  if (errno == ENOENT && may_be_absent) {
    is_absent(path, status, false);
    return -1;
  }
  throw_unreadable(status, path, "cannot be read", errno);
}

bool list(const std::string& folder, std::vector<std::string>& names) {
  names.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return false;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) return errno == 0;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

}  // namespace

milliseconds file_patience() {
  static const milliseconds wished = patience_in_environment();
  return std::min(wished, milliseconds(most_patience_ms.load()));
}

void limit_file_patience(milliseconds most) {
  most_patience_ms = std::max<std::int64_t>(most.count(), 0);
}

long patiently(const std::function<long()>& call) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> until;
  milliseconds pause{10};
  while (true) {
    const long result = call();
    if (result >= 0) return result;
    if (errno == EINTR) continue;
    if (!passes_by_itself(errno)) return result;
    const int reason = errno;
    const auto now = Clock::now();
    if (!until) until = now + file_patience();
    if (now + pause > *until) {
      errno = reason;
      return result;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<milliseconds>(2 * pause, milliseconds(1000));
  }
}

void throw_unreadable(ExitStatus status, const std::string& path, std::string_view what,
                      int reason) {
  rethrow(status, fmt::format("{}: {}: {}", path, what, std::strerror(reason)), Cause::kUnreadable);
}

std::string folder_above(const std::string& path) {
  std::filesystem::path name(path);
  if (!name.has_filename() && name.has_relative_path()) name = name.parent_path();  // "run/"
  const std::string above = name.parent_path().string();
  return above.empty() ? "." : above;
}

std::string resolved(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? std::filesystem::absolute(path, ignored).lexically_normal().string()
                 : whole.string();
}

FileFacts look_at(const std::string& path, ExitStatus status) {
  return look(path, status, false);
}

FileFacts look_ahead(const std::string& path, ExitStatus status) {
  return look(path, status, true);
}

bool same_file(const std::string& a, const std::string& b, ExitStatus status) {
  const FileFacts of_a = look_at(a, status), of_b = look_at(b, status);
  return of_a.is_there() && of_b.is_there() && of_a.device == of_b.device &&
         of_a.number == of_b.number;
}

std::optional<std::vector<std::string>> names_in(const std::string& folder, ExitStatus status) {
  std::vector<std::string> names;
  if (patiently([&] { return list(folder, names) ? 0 : -1; }) < 0) {
    if (errno != ENOENT) throw_unreadable(status, folder, "cannot be listed", errno);
    is_absent(folder, status, false);
    return {};
  }
  std::sort(names.begin(), names.end());
  return names;
}

FileReader::FileReader(std::string path, ExitStatus status, int descriptor)
    : path_(std::move(path)), status_(status), descriptor_(descriptor) {}

FileReader::FileReader(const std::string& path, ExitStatus status)
    : FileReader(path, status, open_to_read(path, status, false)) {}

std::optional<FileReader> FileReader::open_if_there(const std::string& path, ExitStatus status) {
  const int descriptor = open_to_read(path, status, true);
  if (descriptor < 0) return {};
  return FileReader(path, status, descriptor);
}

FileReader FileReader::of_descriptor(const std::string& name, ExitStatus status, int descriptor) {
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) throw_unreadable(status, name, "cannot be read", errno);
  return {name, status, own};
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      status_(other.status_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      position_(other.position_),
      held_(std::move(other.held_)),
      at_(other.at_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  path_ = std::move(other.path_);
  status_ = other.status_;
  std::swap(descriptor_, other.descriptor_);
  position_ = other.position_;
  held_ = std::move(other.held_);
  at_ = other.at_;
  return *this;
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileFacts FileReader::facts() const {
  struct stat status {};
  if (patiently([&] { return ::fstat(descriptor_, &status); }) < 0) {
    throw_unreadable(status_, path_, "cannot be read", errno);
  }
  return facts_of(status);
}

// Waits while a pipe that has a writer is empty, and some seconds for its first writer: to the
// reader a pipe whose writer is yet to come looks like one at its end, but does not hang up.
std::size_t FileReader::read_from_system(char* to, std::size_t bytes) {
  const auto writer_until = std::chrono::steady_clock::now() + kPipeWriter;
  while (true) {
    const long got = patiently([&] { return ::read(descriptor_, to, bytes); });
    if (got < 0 && errno != EAGAIN) throw_unreadable(status_, path_, "cannot be read", errno);
    pollfd waits{descriptor_, POLLIN, 0};
    if (got < 0) {
      ::poll(&waits, 1, -1);
      continue;
    }
    if (got > 0 || position_ > 0 || facts().kind != FileKind::kPipe) {
      position_ += got;
      return static_cast<std::size_t>(got);
    }
    ::poll(&waits, 1, 20);
    if ((waits.revents & POLLIN) != 0) continue;
    if ((waits.revents & POLLHUP) != 0) return 0;
    if (std::chrono::steady_clock::now() > writer_until) {
      rethrow(status_, path_ + ": cannot be read: it is a pipe that nobody writes to");
    }
  }
}

std::size_t FileReader::fill() {
  held_.erase(0, at_);
  at_ = 0;
  const std::size_t before = held_.size();
  held_.resize(before + kBlock);
  const std::size_t got = read_from_system(held_.data() + before, kBlock);
  held_.resize(before + got);
  return got;
}

std::size_t FileReader::read(char* to, std::size_t bytes) {
  if (rest() == 0) return read_from_system(to, bytes);
  const std::size_t count = std::min(bytes, rest());
  std::memcpy(to, held_.data() + at_, count);
  at_ += count;
  return count;
}

bool FileReader::line(std::string& text, bool* whole, std::size_t most) {
  std::size_t searched = at_;
  std::size_t end = held_.find('\n', searched);
  while (end == std::string::npos && rest() <= most) {
    searched = rest();  // fill() moves what is held to the front
    if (fill() == 0) break;
    end = held_.find('\n', searched);
  }
  if (whole != nullptr) *whole = end != std::string::npos;
  if (end == std::string::npos && rest() == 0) return false;
  text = held_.substr(at_, end == std::string::npos ? end : end - at_);
  at_ = end == std::string::npos ? held_.size() : end + 1;
  return true;
}

void FileReader::seek(std::int64_t offset) {
  if (::lseek(descriptor_, offset, SEEK_SET) < 0) {
    throw_unreadable(status_, path_, "cannot be read", errno);
  }
  position_ = offset;
  held_.clear();
  at_ = 0;
}

std::string FileReader::all(std::size_t most_bytes) {
  std::string text;
  std::size_t size = 0;
  while (true) {
    if (size == text.size()) text.resize(std::max(2 * size, kBlock));
    const std::size_t got = read(text.data() + size, text.size() - size);
    if (got == 0) break;
    size += got;
    if (size > most_bytes) {
      rethrow(status_,
              fmt::format("{}: cannot be read: it is longer than {} MiB", path_, most_bytes >> 20));
    }
  }
  text.resize(size);
  return text;
}

std::optional<std::string> read_if_there(const std::string& path, ExitStatus status,
                                         std::size_t most_bytes) {
  auto file = FileReader::open_if_there(path, status);
  if (!file) return {};
  return file->all(most_bytes);
}

std::string read_file(const std::string& path, ExitStatus status, std::size_t most_bytes) {
  return FileReader(path, status).all(most_bytes);
}

void make_folders(const std::string& folder, ExitStatus status) {
  if (folder.empty()) return;
  const auto make = [&] {
    return patiently([&] { return ::mkdir(folder.c_str(), 0777); }) == 0 ||
           (errno == EEXIST && look_at(folder, status).is_folder());
  };
  if (make()) return;
  if (errno == ENOENT) {
    make_folders(std::filesystem::path(folder).parent_path().string(), status);
    if (make()) return;
  }
  throw_unreadable(status, folder, "cannot be made", errno == EEXIST ? ENOTDIR : errno);
}

void rename_file(const std::string& from, const std::string& to, ExitStatus status) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw_unreadable(status, from, fmt::format("cannot be renamed to {}", to), errno);
}

bool remove_if_there(const std::string& path, ExitStatus status) {
  if (patiently([&] { return ::unlink(path.c_str()); }) == 0) return true;
  if (errno == ENOENT || errno == EISDIR) return false;
  throw_unreadable(status, path, "cannot be removed", errno);
}

}  // namespace trireme
