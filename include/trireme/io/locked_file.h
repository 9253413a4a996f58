// A file that one process at a time writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class PosixFile;

// Held from the constructor on, by a lock that ends with the process, so a killed one leaves a file
// that the next takes over. Where the file system has no locks, nobody is refused. All members
// throw RunFolderError.
class LockedFile {
 public:
  // Opens the file or makes it. A link, or anything else but a plain file of one name that is our
  // own, is removed first and never followed. Where another process holds it: "`busy` (process 12
  // on node1)", if the file says who that is, as with the first line of note().
  LockedFile(const std::string& path, const std::string& busy);
  ~LockedFile();  // removes it, unless it was renamed
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  const std::string& path() const { return path_; }
  // What it held when it was taken over; empty if it was made.
  const std::string& left() const { return left_; }

  // Replaces what it holds: a line about this process, and the text.
  void note(std::string_view text);
  void write(std::int64_t offset, std::string_view bytes);
  void empty();
  void sync();
  // The bits of chmod.
  void set_mode(unsigned mode);
  // Replaces what stands there.
  void rename(const std::string& to);

 private:
  bool take(const std::string& busy);
  bool has_its_name() const;

  std::string path_, left_;
  std::unique_ptr<PosixFile> file_;
  bool renamed_ = false;
};

}  // namespace trireme
