// Shared by the source files of the HDF5 layer.
#pragma once

#include <cerrno>
#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

#include "trireme/base/files.h"
#include "trireme/io/hdf5.h"

namespace trireme::hdf5 {

// Holds the process's one lock around calls into HDF5. The first object prepares the library.
class Locked {
 public:
  Locked();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// Returns HDF5's message about its last failure: "H5Dwrite: can't write data; ...".
std::string library_words();

// The errno by which the system refused the library its last call; 0 where HDF5's words name none.
int system_errno();

// Throws DataError "WHAT: library_words()", of Cause::kUnreadable where the system is to blame.
[[noreturn]] void throw_unread(const std::string& what);

// Makes a call into HDF5 that reads, and again as in trireme/base/files.h where the system refuses
// it. The result is negative where it failed.
template <class Call>
auto patiently_read(const Call& call) {
  auto result = call();
  if (result >= 0) return result;
  if (const int reason = system_errno(); reason == 0) return result;
  patiently([&]() -> long {
    result = call();
    errno = result < 0 ? system_errno() : 0;
    return result < 0 ? -1 : 0;
  });
  return result;
}

// An HDF5 identifier and the function that releases it. Hold the lock whenever it is released.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0 && H5Iis_valid(id_) > 0) close_(id_);
  }

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// A UTF-8 string type of `size` bytes, padded with zeros, or of variable length (H5T_VARIABLE).
Handle string_type(std::size_t size);

// The longest text that a file may hold, in bytes.
inline constexpr std::size_t kMaxString = std::size_t{64} << 20;

// Returns the value of an attribute that is one string of variable length. `what` names it in
// errors. Throws DataError if its heap is damaged.
std::string read_heap_string(const std::string& path, const std::string& what, hid_t attribute);

// Throws DataError if an extent of a chunk is 0: HDF5 divides by these extents when it opens a
// dataset, before it checks them. `address` is the offset of the object's header in the file. Looks
// only at headers of the oldest format; the others have checksums.
void check_chunks(const std::string& path, const std::string& name, haddr_t address);

// Throws DataError if the dataset's elements are not stored in the file itself, or if they passed
// through a filter that this program does not read.
void check_storage(hid_t dataset, const std::string& what);

struct File::Impl {
  ~Impl();
  void close();

  std::string path;
  hid_t id = -1;
  bool parallel = false;
};

struct Dataset::Impl {
  ~Impl();

  std::shared_ptr<File::Impl> file;
  std::string name;
  hid_t id = -1;
  ElementType type = ElementType::kOther;
  Extents extents;
  std::int64_t elements = 0;
};

hid_t memory_type(ElementType type);
hid_t file_type(ElementType type);  // little-endian
ElementType classify(hid_t type);

}  // namespace trireme::hdf5
