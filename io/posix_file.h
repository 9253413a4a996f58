// An open file of the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

// All throw RunFolderError with the system's words; the caller translates where a file is to blame.
class PosixFile {
 public:
  PosixFile(std::string path, int flags, int mode = 0644);
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&&) = delete;
  ~PosixFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  // All the bytes or an error.
  void read(std::int64_t offset, void* bytes, std::size_t count) const;
  void write(std::int64_t offset, const void* bytes, std::size_t count);
  // Takes space for the first `bytes` bytes, so that a full disk shows now and not in the middle.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  void sync();

 private:
  std::string path_;
  int descriptor_;
};

// Makes a rename in the folder last.
void sync_folder(const std::string& folder);

// The folder that holds a path.
std::string folder_of(const std::string& path);

}  // namespace trireme
