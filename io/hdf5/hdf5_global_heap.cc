// Strings of variable length are in the file's global heap, and the attribute holds a reference to
// the heap. HDF5 trusts both: one damaged byte can crash it or send it into an endless loop. So we
// take only the reference from HDF5 and read the heap ourselves, with every size checked.
//
// The global heap: HDF5 File Format Specification 3.0, III.E and VIII.B.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/files/posix_file.h"
#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

static_assert(std::endian::native == std::endian::little, "the heap is little-endian");

constexpr std::size_t kReferenceBytes = 16;  // u32 length, u64 address, u32 index
constexpr std::size_t kHeaderBytes = 16;     // header of a collection, and of each object in it
constexpr std::size_t kMaxCollection = std::size_t{256} << 20;

template <class T>
T value_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// A conversion for HDF5: from a string of variable length, as stored in the file, to the
// reference's bytes.
herr_t keep_bytes(hid_t from, hid_t to, H5T_cdata_t* data, std::size_t, std::size_t, std::size_t,
                  void*, void*, hid_t) {
  if (data->command != H5T_CONV_INIT) return 0;
  data->need_bkg = H5T_BKG_NO;
  // Strings in memory have another size, because they are pointers.
  return H5Tget_size(from) == kReferenceBytes && H5Tget_size(to) == kReferenceBytes ? 0 : -1;
}

Handle reference_type() {
  Handle type(H5Tcreate(H5T_OPAQUE, kReferenceBytes), H5Tclose);
  H5Tset_tag(type.get(), "reference into the global heap");
  return type;
}

bool register_conversion() {
  const Handle text(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(text.get(), H5T_VARIABLE);
  return H5Tregister(H5T_PERS_SOFT, "heap reference", text.get(), reference_type().get(),
                     keep_bytes) >= 0;
}

// Returns the bytes of the heap collection at this offset of the file. Empty if there is none.
std::vector<char> read_collection(const PosixFile& file, std::uint64_t address) {
  const auto size = static_cast<std::uint64_t>(file.size());
  char header[kHeaderBytes];
  if (address > size || size - address < sizeof(header)) return {};
  file.read(static_cast<std::int64_t>(address), header, sizeof(header));
  const auto bytes = value_at<std::uint64_t>(header + 8);
  if (std::memcmp(header, "GCOL\1", 5) != 0 || bytes < kHeaderBytes || bytes > size - address ||
      bytes > kMaxCollection) {
    return {};
  }
  std::vector<char> collection(bytes);
  file.read(static_cast<std::int64_t>(address), collection.data(), collection.size());
  return collection;
}

// Returns the object with this index. nullopt: there is none, or the collection is damaged.
std::optional<std::string_view> find_object(const std::vector<char>& collection,
                                            std::uint32_t index) {
  std::size_t at = kHeaderBytes;
  while (at < collection.size() && collection.size() - at >= kHeaderBytes) {
    const auto found = value_at<std::uint16_t>(&collection[at]);
    const auto bytes = value_at<std::uint64_t>(&collection[at + 8]);
    at += kHeaderBytes;
    if (found == 0 || bytes > collection.size() - at) break;  // free space is the last object
    if (found == index) return std::string_view(collection.data() + at, bytes);
    at += (bytes + 7) / 8 * 8;
  }
  return {};
}

}  // namespace

std::string read_heap_string(const std::string& path, const std::string& what, hid_t attribute) {
  static const bool registered = register_conversion();  // the caller holds the library's lock
  char reference[kReferenceBytes] = {};
  if (!registered || H5Aread(attribute, reference_type().get(), reference) < 0) {
    throw_unread(fmt::format("{}: {} cannot be read", path, what));
  }
  const auto length = value_at<std::uint32_t>(reference);
  const auto address = value_at<std::uint64_t>(reference + 4);
  const auto index = value_at<std::uint32_t>(reference + 12);
  if (length == 0) return "";
  const auto collection = read_collection(PosixFile(path, O_RDONLY, ExitStatus::kData), address);
  const auto object = find_object(collection, index);
  if (object && length <= object->size() && length <= kMaxString) {
    const std::string_view text = object->substr(0, length);
    return std::string(text.substr(0, text.find('\0')));
  }
  throw DataError(
      fmt::format("{}: {} is damaged: its text does not lie where it should", path, what));
}

}  // namespace trireme::hdf5
