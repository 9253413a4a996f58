// HDF5 files: a small layer over parallel HDF5. Its handles release themselves, it checks every
// size that it reads, and its errors quote the library's own words.
//
// Thread-safe: all calls of a process go through one lock, because the parallel HDF5 of most
// systems is not thread-safe. Only one thread at a time may use an object.
//
// Files are not trusted. This layer refuses links that leave the file, datasets whose elements are
// stored elsewhere (virtual or external storage), and filters that HDF5 would load from outside. It
// reads strings of variable length itself, because HDF5 believes what a damaged heap says. Files
// that are opened in parallel are our own and have just been created, so they are not checked: the
// checks make look-ups on some ranks only, and with HDF5 1.10.8 that breaks the collective close.
//
// Errors: a fault of the file that is read (missing, foreign, truncated, of another type) is a
// DataError; a call that fails for another reason (disk full, ...) throws Hdf5Error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/box.h"

namespace trireme {
class Communicator;
}

namespace trireme::hdf5 {

std::string library_version();  // "HDF5 1.10.8", of the library in use

// The type of a dataset's elements. kOther: a type that this program does not read.
enum class ElementType { kU8, kU16, kU32, kU64, kI32, kI64, kF32, kF64, kOther };
std::string_view name_of(ElementType type);  // "uint16", "float32", ...
std::size_t size_of(ElementType type);       // bytes; not for kOther

template <class T>
constexpr ElementType element_type_of();
template <>
constexpr ElementType element_type_of<std::uint8_t>() {
  return ElementType::kU8;
}
template <>
constexpr ElementType element_type_of<std::uint16_t>() {
  return ElementType::kU16;
}
template <>
constexpr ElementType element_type_of<std::uint32_t>() {
  return ElementType::kU32;
}
template <>
constexpr ElementType element_type_of<std::uint64_t>() {
  return ElementType::kU64;
}
template <>
constexpr ElementType element_type_of<std::int32_t>() {
  return ElementType::kI32;
}
template <>
constexpr ElementType element_type_of<std::int64_t>() {
  return ElementType::kI64;
}
template <>
constexpr ElementType element_type_of<float>() {
  return ElementType::kF32;
}
template <>
constexpr ElementType element_type_of<double>() {
  return ElementType::kF64;
}

using Extents = std::vector<std::int64_t>;

using trireme::Box;  // of the elements of a dataset

// How the dataset's elements are stored in the file.
struct Layout {
  // 0: contiguous and of fixed size; its space is allocated at once and never filled. Otherwise:
  // the elements per chunk of a one-dimensional dataset that may grow.
  std::int64_t chunk = 0;
  int deflate = 0;  // 1..9: compressed by zlib at that level; only if chunk > 0
};

// How the ranks of a parallel file take part in a transfer.
enum class Transfer {
  kIndependent,  // each rank on its own
  kCollective,   // all ranks of the file at once; a rank with nothing to transfer passes no boxes
};

// How a string attribute is stored.
enum class StringKind {
  kVariable,  // h5py reads it as str
  kFixed,     // h5py reads it as bytes; it is stored entirely inside the attribute
};

class File;

// A dataset shares ownership of its file: HDF5 keeps the file open until its last dataset is gone.
class Dataset {
 public:
  const std::string& name() const;  // the path inside the file
  ElementType type() const;
  const Extents& extents() const;
  std::int64_t elements() const;

  // Returns the byte offset of the first element in the file, as pread needs it, if all elements
  // are contiguous, unfiltered, little-endian and within the file's present size. Otherwise
  // returns nothing.
  std::optional<std::int64_t> contiguous_offset() const;

  // Returns all elements in row-major order. T must be the dataset's own type.
  template <class T>
  std::vector<T> read() const {
    check_type(element_type_of<T>());
    std::vector<T> values(checked_size());
    read_all(values.data());
    return values;
  }
  // Reads (and, below, writes) elements [begin, begin + values.size()) of a one-dimensional
  // dataset.
  template <class T>
  void read(std::int64_t begin, std::span<T> values) const {
    check_type(element_type_of<T>());
    read_raw({{begin}, {static_cast<std::int64_t>(values.size())}}, values.data());
  }
  template <class T>
  void write(std::int64_t begin, std::span<const T> values) {
    check_type(element_type_of<T>());
    write_raw({{{begin}, {static_cast<std::int64_t>(values.size())}}}, values.data(),
              Transfer::kIndependent);
  }
  // Appends the values to a one-dimensional, extendible dataset.
  template <class T>
  void append(std::span<const T> values) {
    check_type(element_type_of<T>());
    append_raw(values.data(), static_cast<std::int64_t>(values.size()));
  }

  // Reads one box. In memory it is densely packed, row-major and of the dataset's own element type.
  void read_raw(const Box& box, void* values) const;
  // Collective over the file's communicator with Transfer::kCollective. Writes disjoint boxes. In
  // memory their elements are densely packed, in the order that they have in the dataset.
  void write_raw(const std::vector<Box>& boxes, const void* values, Transfer transfer);

  // Throws DataError if the file holds fewer bytes than the dataset's extents claim. Compressed
  // data may expand up to 1100 times (deflate reaches 1032).
  void check_stored() const;

  // Throw DataError if the dataset is not one-dimensional, or not of this type.
  void check_one_dimensional() const;
  void check_type(ElementType type) const;

  struct Impl;

 private:
  friend class File;
  explicit Dataset(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::size_t checked_size() const;
  void read_all(void* values) const;
  void append_raw(const void* values, std::int64_t count);

  std::shared_ptr<Impl> impl_;
};

// Paths inside a file are written "/tokens", "/parameters/blocks.0.norm.weight".
class File {
 public:
  // Creates a file in HDF5's latest format, in which metadata have checksums. Replaces an old file
  // of that name. Throws Hdf5Error.
  static File create(const std::string& path);
  // Opens a file for reading. Throws DataError if there is no such file or it is not HDF5.
  static File open(const std::string& path);
  static File open_to_write(const std::string& path);

  // Collective over comm. All ranks must have agreed to call this. The file belongs to all ranks:
  // create_* and close are collective too. comm must outlive the file.
  static File create(const std::string& path, Communicator& comm);
  static File open_to_write(const std::string& path, Communicator& comm);

  const std::string& path() const;
  // The size of the HDF5 part, in bytes from the start of the file. Other bytes may follow it.
  std::int64_t hdf5_bytes() const;

  // Whether there is a dataset or group of this name. Throws DataError if a link on the way is not
  // a hard link.
  bool exists(const std::string& name) const;
  // The datasets at or below a group, as full paths in alphabetical order.
  std::vector<std::string> datasets_below(const std::string& group) const;

  // Also creates the groups on the path.
  Dataset create_dataset(const std::string& name, ElementType type, const Extents& extents,
                         const Layout& layout = {});
  Dataset dataset(const std::string& name) const;

  // A one-dimensional dataset of UTF-8 strings of one fixed length, padded with zeros. Reading
  // throws DataError if it is another dataset, or claims more than 64 MiB.
  void create_strings(const std::string& name, const std::vector<std::string>& values);
  std::vector<std::string> strings(const std::string& name) const;

  // A text of any bytes as a one-dimensional dataset of uint8. Reading throws DataError if it is
  // another dataset, has more than `most` bytes, or the file holds fewer than it claims.
  void create_text(const std::string& name, std::string_view text);
  std::string text(const std::string& name, std::size_t most) const;

  // Attributes of an object; "/" is the file itself. Setting one replaces an old one.
  void set_attribute(const std::string& object, const std::string& name, const std::string& value,
                     StringKind kind = StringKind::kVariable);
  void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  bool has_attribute(const std::string& object, const std::string& name) const;
  std::vector<std::string> attributes(const std::string& object) const;  // names, alphabetical
  // Throw DataError if the attribute is missing, of another kind or not a single value. A string of
  // variable length is read from the file on disk: close whatever is writing to it first.
  std::string string_attribute(const std::string& object, const std::string& name) const;
  std::int64_t integer_attribute(const std::string& object, const std::string& name) const;
  double real_attribute(const std::string& object, const std::string& name) const;

  // Writes everything to the operating system (not to the disk), then closes the file and all its
  // datasets. Throws Hdf5Error if that fails. The destructor closes the file too, but cannot report
  // a failure, and leaves a parallel file open while an exception is in flight.
  void close();

  struct Impl;

 private:
  explicit File(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::hdf5
