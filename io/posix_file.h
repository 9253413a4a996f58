// An open file of the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

// All members throw RunFolderError with the system's message. Where another file is to blame (data,
// a checkpoint), the caller translates the error.
class PosixFile {
 public:
  PosixFile(std::string path, int flags, int mode = 0644);
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&&) = delete;
  ~PosixFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  // Both transfer all the bytes or throw.
  void read(std::int64_t offset, void* bytes, std::size_t count) const;
  void write(std::int64_t offset, const void* bytes, std::size_t count);
  // Allocates space for the first `bytes` bytes, so that a full disk shows now and not midway.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  void sync();

 private:
  std::string path_;
  int descriptor_;
};

// Syncs a folder, so that a rename in it survives a crash.
void sync_folder(const std::string& folder);

// Returns the parent folder of a path.
std::string folder_of(const std::string& path);

}  // namespace trireme
