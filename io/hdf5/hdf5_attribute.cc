#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

Handle open_object(const File& file, hid_t id, const std::string& name) {
  Handle object(file.exists(name) ? H5Oopen(id, name.c_str(), H5P_DEFAULT) : -1, H5Oclose);
  if (!object.valid() && system_errno() != 0) throw_unread(file.path() + ": cannot be read");
  if (!object.valid()) throw DataError(fmt::format("{}: there is no {}", file.path(), name));
  return object;
}

void write_attribute(const File& file, hid_t id, const std::string& object, const std::string& name,
                     hid_t type, hid_t memory, const void* value) {
  const Handle owner = open_object(file, id, object);
  if (H5Aexists(owner.get(), name.c_str()) > 0) H5Adelete(owner.get(), name.c_str());
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(
      H5Acreate2(owner.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid() || H5Awrite(attribute.get(), memory, value) < 0) {
    throw Hdf5Error(fmt::format("{}: attribute {} of {} cannot be written: {}", file.path(), name,
                                object, library_words()));
  }
}

struct Opened {
  Handle attribute, type, space;
};

Opened open_attribute(const File& file, hid_t id, const std::string& object,
                      const std::string& name) {
  const Handle owner = open_object(file, id, object);
  Opened opened{{H5Aopen(owner.get(), name.c_str(), H5P_DEFAULT), H5Aclose}, {}, {}};
  if (!opened.attribute.valid()) {
    if (system_errno() != 0) throw_unread(fmt::format("{}: {} cannot be read", file.path(), name));
    H5Eclear2(H5E_DEFAULT);
    throw DataError(fmt::format("{}: {} has no attribute {}", file.path(), object, name));
  }
  opened.type = Handle(H5Aget_type(opened.attribute.get()), H5Tclose);
  opened.space = Handle(H5Aget_space(opened.attribute.get()), H5Sclose);
  if (!opened.type.valid() || H5Sget_simple_extent_npoints(opened.space.get()) != 1) {
    throw DataError(
        fmt::format("{}: attribute {} of {} is not a single value", file.path(), name, object));
  }
  return opened;
}

[[noreturn]] void refuse_kind(const File& file, const std::string& object, const std::string& name,
                              std::string_view wanted) {
  throw DataError(
      fmt::format("{}: attribute {} of {} is not {}", file.path(), name, object, wanted));
}

// Reads a string of fixed or of variable length, because other programs write both. We never let
// HDF5 read a string of variable length, since HDF5 trusts the heap that holds it.
std::string read_string(const File& file, const std::string& what, const Opened& opened) {
  if (H5Tis_variable_str(opened.type.get()) > 0) {
    return read_heap_string(file.path(), what, opened.attribute.get());
  }
  const std::size_t size = H5Tget_size(opened.type.get());
  if (size > kMaxString) throw DataError(fmt::format("{}: {} is too long", file.path(), what));
  std::string text(size, '\0');
  if (H5Aread(opened.attribute.get(), opened.type.get(), text.data()) < 0) {
    throw_unread(fmt::format("{}: {} cannot be read", file.path(), what));
  }
  text.resize(::strnlen(text.data(), text.size()));
  return text;
}

herr_t add_name(hid_t, const char* name, const H5A_info_t*, void* names) {
  try {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  } catch (const std::bad_alloc&) {
    return -1;  // no exception may pass through the library
  }
  return 0;
}

}  // namespace

void File::set_attribute(const std::string& object, const std::string& name,
                         const std::string& value, StringKind kind) {
  const Locked lock;
  TRIREME_CHECK(value.find('\0') == std::string::npos,
                fmt::format("{}: attribute {} would hold a zero byte", path(), name));
  const char* text = value.c_str();  // ends with a zero byte, so that even "" is one byte long
  if (kind == StringKind::kVariable) {
    const Handle type = string_type(H5T_VARIABLE);
    write_attribute(*this, impl_->id, object, name, type.get(), type.get(), &text);
  } else {
    const Handle type = string_type(std::max<std::size_t>(value.size(), 1));
    write_attribute(*this, impl_->id, object, name, type.get(), type.get(), text);
  }
}

void File::set_attribute(const std::string& object, const std::string& name, std::int64_t value) {
  const Locked lock;
  write_attribute(*this, impl_->id, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void File::set_attribute(const std::string& object, const std::string& name, double value) {
  const Locked lock;
  write_attribute(*this, impl_->id, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

bool File::has_attribute(const std::string& object, const std::string& name) const {
  const Locked lock;
  if (!exists(object)) return false;
  const Handle owner = open_object(*this, impl_->id, object);
  const htri_t there = patiently_read([&] { return H5Aexists(owner.get(), name.c_str()); });
  if (there < 0 && system_errno() != 0) throw_unread(path() + ": cannot be read");
  return there > 0;
}

std::vector<std::string> File::attributes(const std::string& object) const {
  const Locked lock;
  const Handle owner = open_object(*this, impl_->id, object);
  std::vector<std::string> names;
  hsize_t position = 0;
  if (H5Aiterate2(owner.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &position, add_name, &names) < 0) {
    throw_unread(fmt::format("{}: attributes of {} cannot be listed", path(), object));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string File::string_attribute(const std::string& object, const std::string& name) const {
  const Locked lock;
  const Opened opened = open_attribute(*this, impl_->id, object, name);
  if (H5Tget_class(opened.type.get()) != H5T_STRING) refuse_kind(*this, object, name, "a string");
  return read_string(*this, fmt::format("attribute {} of {}", name, object), opened);
}

std::int64_t File::integer_attribute(const std::string& object, const std::string& name) const {
  const Locked lock;
  const Opened opened = open_attribute(*this, impl_->id, object, name);
  std::int64_t value = 0;
  if (H5Tget_class(opened.type.get()) != H5T_INTEGER || H5Tget_size(opened.type.get()) > 8 ||
      H5Aread(opened.attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    refuse_kind(*this, object, name, "an integer");
  }
  return value;
}

double File::real_attribute(const std::string& object, const std::string& name) const {
  const Locked lock;
  const Opened opened = open_attribute(*this, impl_->id, object, name);
  const H5T_class_t kind = H5Tget_class(opened.type.get());
  double value = 0;
  if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || H5Tget_size(opened.type.get()) > 8 ||
      H5Aread(opened.attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    refuse_kind(*this, object, name, "a number");
  }
  return value;
}

}  // namespace trireme::hdf5
