#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/version.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

// A process has one HDF5 library, so it has one lock for it. This is the only object here that is
// not passed down from main. The lock is recursive, because a handle may be released inside a call.
std::recursive_mutex& library_lock() {
  static std::recursive_mutex lock;
  return lock;
}

void prepare_library() {
  // At exit HDF5 would close leaked files. Closing a parallel file is collective, so a rank that
  // ends alone would wait forever.
  H5dont_atexit();
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // our messages contain what HDF5 would print
}

struct Known {
  ElementType type;
  std::string_view name;
  std::size_t size;
  H5T_class_t kind;
  bool is_signed;
};

constexpr std::array<Known, 8> kKnown = {{
    {ElementType::kU8, "uint8", 1, H5T_INTEGER, false},
    {ElementType::kU16, "uint16", 2, H5T_INTEGER, false},
    {ElementType::kU32, "uint32", 4, H5T_INTEGER, false},
    {ElementType::kU64, "uint64", 8, H5T_INTEGER, false},
    {ElementType::kI32, "int32", 4, H5T_INTEGER, true},
    {ElementType::kI64, "int64", 8, H5T_INTEGER, true},
    {ElementType::kF32, "float32", 4, H5T_FLOAT, true},
    {ElementType::kF64, "float64", 8, H5T_FLOAT, true},
}};

herr_t collect(unsigned, const H5E_error2_t* entry, void* words) {
  auto& lines = *static_cast<std::vector<std::string>*>(words);
  lines.push_back(fmt::format("{}: {}", entry->func_name ? entry->func_name : "?",
                              entry->desc ? entry->desc : "?"));
  return 0;
}

}  // namespace

std::string library_version() {
  const Locked locked;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

bool library_is_thread_safe() {
  const Locked locked;
  hbool_t safe = false;
  return H5is_library_threadsafe(&safe) >= 0 && safe;
}

Locked::Locked() : lock_(library_lock()) {
  static const bool prepared = (prepare_library(), true);
  (void)prepared;
}

std::string library_words() {
  std::vector<std::string> lines;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &lines);  // innermost first
  H5Eclear2(H5E_DEFAULT);
  if (lines.empty()) return "HDF5 gave no reason";
  std::string text = lines.back();
  if (lines.size() > 1) text += "; " + lines.front();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// HDF5's driver for plain files writes "errno = 5" into its descriptions.
int system_errno() {
  std::vector<std::string> lines;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &lines);
  constexpr std::string_view kName = "errno = ";
  for (const std::string& line : lines) {
    const std::size_t at = line.find(kName);
    if (at != std::string::npos) return std::atoi(line.c_str() + at + kName.size());
  }
  return 0;
}

void throw_unread(const std::string& what) {
  const Cause cause = system_errno() != 0 ? Cause::kUnreadable : Cause::kWrong;
  throw DataError(what + ": " + library_words(), cause);
}

std::string_view name_of(ElementType type) {
  for (const Known& known : kKnown) {
    if (known.type == type) return known.name;
  }
  return "another type";
}

std::size_t size_of(ElementType type) {
  for (const Known& known : kKnown) {
    if (known.type == type) return known.size;
  }
  throw InternalError("an element type without a size");
}

ElementType classify(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t size = H5Tget_size(type);
  for (const Known& known : kKnown) {
    if (known.kind != kind || known.size != size) continue;
    if (kind == H5T_INTEGER && ((H5Tget_sign(type) == H5T_SGN_2) != known.is_signed ||
                                H5Tget_precision(type) != 8 * size)) {
      continue;
    }
    // A float of a known size may still have another format, such as bfloat16 in 4 bytes.
    if (kind == H5T_FLOAT && H5Tequal(type, file_type(known.type)) <= 0 &&
        H5Tequal(type, known.type == ElementType::kF32 ? H5T_IEEE_F32BE : H5T_IEEE_F64BE) <= 0) {
      continue;
    }
    return known.type;
  }
  return ElementType::kOther;
}

hid_t memory_type(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return H5T_NATIVE_UINT8;
    case ElementType::kU16:
      return H5T_NATIVE_UINT16;
    case ElementType::kU32:
      return H5T_NATIVE_UINT32;
    case ElementType::kU64:
      return H5T_NATIVE_UINT64;
    case ElementType::kI32:
      return H5T_NATIVE_INT32;
    case ElementType::kI64:
      return H5T_NATIVE_INT64;
    case ElementType::kF32:
      return H5T_NATIVE_FLOAT;
    case ElementType::kF64:
      return H5T_NATIVE_DOUBLE;
    case ElementType::kOther:
      break;
  }
  throw InternalError("an element type that is not read or written");
}

hid_t file_type(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return H5T_STD_U8LE;
    case ElementType::kU16:
      return H5T_STD_U16LE;
    case ElementType::kU32:
      return H5T_STD_U32LE;
    case ElementType::kU64:
      return H5T_STD_U64LE;
    case ElementType::kI32:
      return H5T_STD_I32LE;
    case ElementType::kI64:
      return H5T_STD_I64LE;
    case ElementType::kF32:
      return H5T_IEEE_F32LE;
    case ElementType::kF64:
      return H5T_IEEE_F64LE;
    case ElementType::kOther:
      break;
  }
  throw InternalError("an element type that is not read or written");
}

}  // namespace trireme::hdf5
