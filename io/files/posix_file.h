// An open file of the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/base/exit_status.h"

namespace trireme {

// All members throw errors of the status that says what the file is: of the run folder, data, a
// checkpoint. What the system refuses is of Cause::kUnreadable; opening and reading are tried again
// as in trireme/base/files.h. (A write that failed is not: its bytes may be lost whatever the next
// call says.)
class PosixFile {
 public:
  // A new file has mode 0644.
  PosixFile(std::string path, int flags, ExitStatus status = ExitStatus::kRunFolder);
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&&) = delete;
  ~PosixFile();

  const std::string& path() const { return path_; }
  ExitStatus status() const { return status_; }
  int descriptor() const { return descriptor_; }
  // Removes the name, so that the file is gone when it is closed, however the process ends.
  // Messages call it `shown_as` from now on.
  void lose_name(std::string shown_as);
  std::int64_t size() const;
  // Both transfer all the bytes or throw. A file that ends too early is of Cause::kWrong.
  void read(std::int64_t offset, void* bytes, std::size_t count) const;
  void write(std::int64_t offset, const void* bytes, std::size_t count);
  // Allocates space for the first `bytes` bytes, so that a full disk shows now and not midway.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  void sync();

 private:
  std::string path_;
  ExitStatus status_;
  int descriptor_;
};

// Makes a file, open to be read and written. What stands there goes, a link itself and not what it
// names. Throws RunFolderError.
PosixFile make_file_anew(const std::string& path);

// Syncs a folder, so that a rename in it survives a crash.
void sync_folder(const std::string& folder);

}  // namespace trireme
