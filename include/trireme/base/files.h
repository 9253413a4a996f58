// Files and folders, as the system shows them: the one way to ask whether something is there, to
// read a file and to list a folder.
//
// A file is absent only when the system says so: ENOENT, of a name in a folder that exists. What
// fails in another way (EACCES, EIO, ESTALE, ENOTDIR, a link to nothing) says nothing about the
// file: it is a fault of Cause::kUnreadable in one line, "PATH: cannot be read: why", and of the
// status that the caller gives, which is that of what the file was meant to be: kData, kCheckpoint,
// kRunFolder, or kUsage for another file that a flag names. EIO and ESTALE, by which the servers of
// a network's file systems come and go, are tried again first, for as long as file_patience().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/exit_status.h"

namespace trireme {

// How long a call that fails with EIO or ESTALE is tried again: TRIREME_FILE_PATIENCE in the
// environment, in seconds, 30 where it is not set; 0 tries once. A process has one, because every
// reader of files has it: main's options and a run's limits do not reach all of them.
std::chrono::milliseconds file_patience();

// A run lowers it to half of the limit after which a rank that does not answer is lost.
void limit_file_patience(std::chrono::milliseconds most);

// Makes a call of the system that returns a negative number and sets errno where it fails. Repeats
// it after EINTR, and for as long as file_patience() after EIO and ESTALE. Returns what the last
// call returned; errno is the last call's.
long patiently(const std::function<long()>& call);

// Throws the fault "PATH: WHAT: reason" of this status, Cause::kUnreadable; reason is an errno.
[[noreturn]] void throw_unreadable(ExitStatus status, const std::string& path,
                                   std::string_view what, int reason);

enum class FileKind { kAbsent, kFile, kFolder, kPipe, kOther };  // kOther: a device, a socket

// What a name stands for, and of a file how long it is and when it was last changed.
struct FileFacts {
  FileKind kind = FileKind::kAbsent;
  std::int64_t bytes = 0;
  std::int64_t changed_ns = 0;           // since 1970
  std::uint64_t device = 0, number = 0;  // two names of the same file have both in common
  bool is_there() const { return kind != FileKind::kAbsent; }
  bool is_file() const { return kind == FileKind::kFile; }
  bool is_folder() const { return kind == FileKind::kFolder; }
};

// Follows links. A name in a folder that does not exist is a fault as well: use `look_ahead` for
// what this program may make, folders above included.
FileFacts look_at(const std::string& path, ExitStatus status);
FileFacts look_ahead(const std::string& path, ExitStatus status);

// The folder that holds what a path names: "." for a bare name, "a" for "a/run/". The second one
// follows links as far as they can be followed and is absolute.
std::string folder_above(const std::string& path);
std::string resolved(const std::string& path);

// Whether the names stand for the same file or folder; false where one is absent.
bool same_file(const std::string& a, const std::string& b, ExitStatus status);

// The names in a folder, sorted, without "." and ".."; nothing where the folder is absent.
std::optional<std::vector<std::string>> names_in(const std::string& folder, ExitStatus status);

// The contents of a file; nothing where it is absent. A file longer than `most_bytes` is a fault.
std::optional<std::string> read_if_there(const std::string& path, ExitStatus status,
                                         std::size_t most_bytes = std::size_t{1} << 30);
// The same, where absence is a fault too.
std::string read_file(const std::string& path, ExitStatus status,
                      std::size_t most_bytes = std::size_t{1} << 30);

// A file that is read from one end to the other.
class FileReader {
 public:
  // Returns nothing where the file is absent.
  static std::optional<FileReader> open_if_there(const std::string& path, ExitStatus status);
  FileReader(const std::string& path, ExitStatus status);  // absence is a fault
  // A copy of a descriptor that is open already, such as standard input's; `name` is for messages.
  static FileReader of_descriptor(const std::string& name, ExitStatus status, int descriptor);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  const std::string& path() const { return path_; }
  FileFacts facts() const;
  // Reads up to `bytes` bytes. Returns how many; 0 at the end. A pipe is read until its writer
  // ends; one that nobody opens for writing within 5 s is a fault.
  std::size_t read(char* to, std::size_t bytes);
  // The next line without its '\n'; false at the end. `whole` tells whether a '\n' ended it. Of a
  // line of more than `most` bytes it returns more than `most`, not necessarily all.
  bool line(std::string& text, bool* whole = nullptr, std::size_t most = std::size_t{1} << 40);
  // Offset in the file of what is read next.
  std::int64_t position() const { return position_ - static_cast<std::int64_t>(rest()); }
  void seek(std::int64_t offset);
  // Everything from here on; more than `most_bytes` bytes are a fault.
  std::string all(std::size_t most_bytes);

 private:
  FileReader(std::string path, ExitStatus status, int descriptor);
  std::size_t rest() const { return held_.size() - at_; }
  std::size_t fill();
  std::size_t read_from_system(char* to, std::size_t bytes);

  std::string path_;
  ExitStatus status_;
  int descriptor_ = -1;
  std::int64_t position_ = 0;  // of the descriptor
  std::string held_;           // read from the file, and from at_ on not given out
  std::size_t at_ = 0;
};

// These throw as above. Folders above are made too; one that is there already is no fault.
void make_folders(const std::string& folder, ExitStatus status);
void rename_file(const std::string& from, const std::string& to, ExitStatus status);
// Whether there was one. A link is removed itself, and a folder stays.
bool remove_if_there(const std::string& path, ExitStatus status);

}  // namespace trireme
