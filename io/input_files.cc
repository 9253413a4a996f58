#include "input_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) unreadable(path, error.value());
  return size;
}

}  // namespace

void unreadable(const std::string& path, int error) {
  throw DataError(fmt::format("cannot read {}: {}", path, std::strerror(error)));
}

bool is_input_folder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) unreadable(path, error ? error.value() : ENOENT);
  return fs::is_directory(status);
}

InputFile input_file(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !fs::is_regular_file(path, ignored)) return {path, 0, false};
  return {path, bytes_of(path), true};
}

std::vector<InputFile> files_below(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink,
                                         error);
  std::vector<fs::path> above{fs::canonical(folder, error)};  // the folders that hold the entry
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;  // a dangling link is not a file
    if (entry->is_directory(ignored)) {
      above.resize(static_cast<std::size_t>(entry.depth()) + 1);
      above.push_back(fs::canonical(entry->path(), ignored));
      // A link to a folder that holds it would be followed for ever.
      const bool again = std::find(above.begin(), above.end() - 1, above.back()) != above.end() - 1;
      if (again) entry.disable_recursion_pending();
    }
    if (entry->is_regular_file(ignored)) paths.push_back(entry->path().string());
  }
  if (error) unreadable(folder, error.value());
  std::sort(paths.begin(), paths.end());
  std::vector<InputFile> files;
  files.reserve(paths.size());
  for (std::string& path : paths) {
    const std::uint64_t size = bytes_of(path);
    files.push_back({std::move(path), size, true});
  }
  return files;
}

InputStream::InputStream(const std::string& path, int standard_input)
    : path_(path),
      descriptor_(path == "-" ? ::dup(standard_input)
                              : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) unreadable(path_, errno);
}

InputStream::~InputStream() {
  ::close(descriptor_);
}

std::size_t InputStream::read(void* bytes, std::size_t count) {
  std::size_t size = 0;
  while (size < count) {  // pipes give little at a time
    const ssize_t got = ::read(descriptor_, static_cast<char*>(bytes) + size, count - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) unreadable(path_, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

}  // namespace trireme
