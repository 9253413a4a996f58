// Datasets of texts, and of strings of fixed length.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {

Handle string_type(std::size_t size) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), size);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  if (size != H5T_VARIABLE) H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

void File::create_strings(const std::string& name, const std::vector<std::string>& values) {
  const Locked lock;
  const std::string what = fmt::format("{}: {}", path(), name);
  std::size_t length = 1;
  for (const std::string& value : values) {
    TRIREME_CHECK(value.find('\0') == std::string::npos, what + " would hold a zero byte");
    length = std::max(length, value.size());
  }
  std::string packed(length * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i].copy(packed.data() + i * length, length);
  const Handle type = string_type(length);
  const auto count = static_cast<hsize_t>(values.size());
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);  // the same contents give the same file
  const Handle dataset(H5Dcreate2(impl_->id, name.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                  list.get(), H5P_DEFAULT),
                       H5Dclose);
  if (!dataset.valid() || (!packed.empty() && H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL,
                                                       H5P_DEFAULT, packed.data()) < 0)) {
    throw Hdf5Error(fmt::format("{} cannot be written: {}", what, library_words()));
  }
}

std::vector<std::string> File::strings(const std::string& name) const {
  const Locked lock;
  const Dataset dataset = this->dataset(name);
  const std::string what = fmt::format("{}: {}", path(), name);
  dataset.check_one_dimensional();
  const Handle opened(H5Dopen2(impl_->id, name.c_str(), H5P_DEFAULT), H5Dclose);
  const Handle type(H5Dget_type(opened.get()), H5Tclose);
  if (!type.valid() || H5Tget_class(type.get()) != H5T_STRING ||
      H5Tis_variable_str(type.get()) != 0) {
    throw DataError(what + " does not hold strings of fixed length");
  }
  const auto count = static_cast<std::size_t>(dataset.elements());
  const std::size_t length = H5Tget_size(type.get());
  if (length == 0 || length > kMaxString || count > kMaxString / length) {
    throw DataError(fmt::format("{} claims {} strings of {} bytes", what, count, length));
  }
  std::string packed(count * length, '\0');
  if (count > 0 &&
      H5Dread(opened.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, packed.data()) < 0) {
    throw_unread(fmt::format("{} cannot be read", what));
  }
  std::vector<std::string> values;
  for (std::size_t i = 0; i < count; ++i) {
    const char* begin = packed.data() + i * length;
    values.emplace_back(begin, ::strnlen(begin, length));
  }
  return values;
}

void File::create_text(const std::string& name, std::string_view text) {
  Dataset dataset = create_dataset(name, ElementType::kU8, {std::ssize(text)});
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  if (!text.empty()) dataset.write(0, std::span(bytes, text.size()));
}

std::string File::text(const std::string& name, std::size_t most) const {
  const Dataset dataset = this->dataset(name);
  dataset.check_one_dimensional();
  dataset.check_type(ElementType::kU8);
  if (std::cmp_greater(dataset.elements(), most)) {
    throw DataError(fmt::format("{}: {} has {} bytes; at most {} are read", path(), name,
                                dataset.elements(), most));
  }
  dataset.check_stored();
  std::string stored(static_cast<std::size_t>(dataset.elements()), '\0');
  auto* bytes = reinterpret_cast<std::uint8_t*>(stored.data());
  if (!stored.empty()) dataset.read(0, std::span(bytes, stored.size()));
  return stored;
}

}  // namespace trireme::hdf5
