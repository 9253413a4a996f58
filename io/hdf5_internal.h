// What the files of the HDF5 layer share.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

#include "trireme/io/hdf5.h"

namespace trireme::hdf5 {

// Holds the one lock of the process around calls into HDF5; the first prepares the library.
class Locked {
 public:
  Locked();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// What HDF5 said about its last failure: "H5Dwrite: can't write data: file write failed, ...".
std::string library_words();

// An HDF5 identifier and the function that gives it back. Give it back only while holding the lock.
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

// No text in a file may be longer, in bytes.
inline constexpr std::size_t kMaxString = std::size_t{64} << 20;

// The value of an attribute that is one string of variable length. `what` names it in errors.
// Throws DataError where its heap is damaged.
std::string read_heap_string(const std::string& path, const std::string& what, hid_t attribute);

// HDF5 divides by the extents of chunks as it opens a dataset, before it has looked at them. Throws
// DataError where one is 0. `address` is where the object's header lies in the file. Only headers of
// the oldest format are looked at: the others have checksums.
void check_chunks(const std::string& path, const std::string& name, haddr_t address);

// Throws DataError where the dataset's elements do not lie in the file itself, or passed through a
// filter that this program does not read.
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
