#include <algorithm>
#include <exception>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;
constexpr std::int64_t kMostCompression = 1100;  // deflate reaches a factor of 1032

std::string label(const Dataset::Impl& dataset) {
  return fmt::format("{}: {}", dataset.file->path, dataset.name);
}

std::vector<hsize_t> sizes_of(const Extents& extents) {
  return {extents.begin(), extents.end()};
}

// The product of extents from a file. The extents may be any numbers.
std::int64_t checked_product(const std::vector<hsize_t>& extents, const std::string& what) {
  hsize_t product = 1;
  for (const hsize_t extent : extents) {
    if (extent > 0 && product > static_cast<hsize_t>(kMaxElements) / extent) {
      throw DataError(what + " claims more elements than fit into memory or a file");
    }
    product *= extent;
  }
  return static_cast<std::int64_t>(product);
}

void describe(Dataset::Impl& dataset) {
  // This check comes first, because the extents of a virtual dataset are elsewhere.
  if (!dataset.file->parallel) check_storage(dataset.id, label(dataset));
  const Handle type(H5Dget_type(dataset.id), H5Tclose);
  const Handle space(H5Dget_space(dataset.id), H5Sclose);
  const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (!type.valid() || rank < 0 || rank > H5S_MAX_RANK ||
      H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    throw DataError(label(dataset) + " has no readable type and extents");
  }
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  dataset.elements = checked_product(extents, label(dataset));
  dataset.extents.assign(extents.begin(), extents.end());
  dataset.type = classify(type.get());
}

// Takes over a dataset that was just opened, and reads its type and extents.
std::shared_ptr<Dataset::Impl> adopt(std::shared_ptr<File::Impl> file, const std::string& name,
                                     hid_t id) {
  auto dataset = std::make_shared<Dataset::Impl>();
  dataset->file = std::move(file);
  dataset->name = name;
  dataset->id = id;
  describe(*dataset);
  return dataset;
}

void check_box(const Dataset::Impl& dataset, const Box& box) {
  const Extents& extents = dataset.extents;
  bool ok = box.start.size() == extents.size() && box.count.size() == extents.size();
  for (std::size_t d = 0; ok && d < extents.size(); ++d) {
    ok = box.start[d] >= 0 && box.count[d] >= 0 && box.start[d] <= extents[d] &&
         box.count[d] <= extents[d] - box.start[d];
  }
  if (!ok) {
    throw InternalError(fmt::format("{} has extents ({}); asked for ({}) elements from ({})",
                                    label(dataset), fmt::join(extents, ", "),
                                    fmt::join(box.count, ", "), fmt::join(box.start, ", ")));
  }
}

// Returns the dataset's dataspace in the file, with the boxes selected.
Handle select(const Dataset::Impl& dataset, const std::vector<Box>& boxes) {
  Handle space(H5Dget_space(dataset.id), H5Sclose);
  bool ok = space.valid();
  if (boxes.empty()) ok = ok && H5Sselect_none(space.get()) >= 0;
  H5S_seloper_t how = H5S_SELECT_SET;
  for (const Box& box : boxes) {
    check_box(dataset, box);
    if (dataset.extents.empty()) {  // a scalar is selected as a whole
      ok = ok && H5Sselect_all(space.get()) >= 0;
      continue;
    }
    const std::vector<hsize_t> start = sizes_of(box.start);
    const std::vector<hsize_t> count = sizes_of(box.count);
    ok = ok &&
         H5Sselect_hyperslab(space.get(), how, start.data(), nullptr, count.data(), nullptr) >= 0;
    how = H5S_SELECT_OR;
  }
  if (!ok) throw Hdf5Error(label(dataset) + ": selection fails: " + library_words());
  return space;
}

Handle memory_space(std::int64_t elements) {
  const auto size = static_cast<hsize_t>(elements);
  Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  if (elements == 0) H5Sselect_none(space.get());
  return space;
}

Handle creation_list(const Layout& layout, const std::string& what) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  // No time stamps, so that the same contents give the same file.
  bool ok = H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER) >= 0 &&
            H5Pset_obj_track_times(list.get(), false) >= 0;
  if (layout.chunk > 0) {
    const auto chunk = static_cast<hsize_t>(layout.chunk);
    ok = ok && H5Pset_chunk(list.get(), 1, &chunk) >= 0;
    if (layout.deflate > 0) {
      ok = ok && H5Pset_deflate(list.get(), static_cast<unsigned>(layout.deflate)) >= 0;
    }
  } else {
    ok = ok && H5Pset_layout(list.get(), H5D_CONTIGUOUS) >= 0 &&
         H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY) >= 0;
  }
  if (!ok) throw Hdf5Error(what + ": layout refused: " + library_words());
  return list;
}

Handle data_space(const Extents& extents, bool extendible) {
  if (extents.empty()) return Handle(H5Screate(H5S_SCALAR), H5Sclose);
  const std::vector<hsize_t> now = sizes_of(extents);
  const std::vector<hsize_t> most(extents.size(), H5S_UNLIMITED);
  return Handle(H5Screate_simple(static_cast<int>(extents.size()), now.data(),
                                 extendible ? most.data() : nullptr),
                H5Sclose);
}

// HDF5 would make them by itself, and write the time into them.
void make_groups_above(hid_t file, const std::string& name) {
  const Handle list(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);  // the same contents give the same file
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    const std::string group = name.substr(0, slash);
    if (H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0) continue;
    // Where it fails, the dataset cannot be created either, and that says why.
    const Handle made(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, list.get(), H5P_DEFAULT),
                      H5Gclose);
  }
}

}  // namespace

Dataset::Impl::~Impl() {
  if (id < 0 || (file->parallel && std::uncaught_exceptions() > 0)) return;
  const Locked lock;
  if (file->id >= 0 && H5Iis_valid(id) > 0) H5Dclose(id);
}

const std::string& Dataset::name() const {
  return impl_->name;
}
ElementType Dataset::type() const {
  return impl_->type;
}
const Extents& Dataset::extents() const {
  return impl_->extents;
}
std::int64_t Dataset::elements() const {
  return impl_->elements;
}

void Dataset::check_type(ElementType type) const {
  if (impl_->type != type) {
    throw DataError(
        fmt::format("{} holds {}, not {}", label(*impl_), name_of(impl_->type), name_of(type)));
  }
}

void Dataset::check_one_dimensional() const {
  if (impl_->extents.size() != 1) {
    throw DataError(
        fmt::format("{} has {} dimensions, not one", label(*impl_), impl_->extents.size()));
  }
}

std::size_t Dataset::checked_size() const {
  // A corrupt header may claim any size. The real size is bounded by that of the file, times the
  // highest compression.
  const std::int64_t held = look_at(impl_->file->path, ExitStatus::kData).bytes;
  const auto bytes = impl_->elements * static_cast<std::int64_t>(size_of(impl_->type));
  if (bytes / kMostCompression > held) {
    throw DataError(fmt::format("{} claims {} bytes in a file of {}", label(*impl_), bytes, held));
  }
  return static_cast<std::size_t>(impl_->elements);
}

void Dataset::check_stored() const {
  const Locked lock;
  const Handle list(H5Dget_create_plist(impl_->id), H5Pclose);
  const std::int64_t bytes = impl_->elements * static_cast<std::int64_t>(size_of(impl_->type));
  const bool filtered = H5Pget_nfilters(list.get()) > 0;
  const std::int64_t size = look_at(impl_->file->path, ExitStatus::kData).bytes;
  std::int64_t stored = static_cast<std::int64_t>(
      std::min<hsize_t>(H5Dget_storage_size(impl_->id), static_cast<hsize_t>(size)));
  if (H5Pget_layout(list.get()) == H5D_CONTIGUOUS && bytes > 0) {
    const haddr_t offset = H5Dget_offset(impl_->id);
    const auto end = static_cast<haddr_t>(size);
    stored = offset > end ? 0 : std::min(stored, static_cast<std::int64_t>(end - offset));
  }
  if ((filtered ? bytes / kMostCompression : bytes) > stored) {
    throw DataError(fmt::format("{} claims {} bytes, of which the file holds {}", label(*impl_),
                                bytes, stored));
  }
}

std::optional<std::int64_t> Dataset::contiguous_offset() const {
  const Locked lock;
  const Handle list(H5Dget_create_plist(impl_->id), H5Pclose);
  const Handle type(H5Dget_type(impl_->id), H5Tclose);
  if (!list.valid() || !type.valid() || impl_->type == ElementType::kOther) return {};
  if (H5Pget_layout(list.get()) != H5D_CONTIGUOUS) return {};
  if (H5Pget_external_count(list.get()) != 0) return {};
  if (size_of(impl_->type) > 1 && H5Tget_order(type.get()) != H5T_ORDER_LE) return {};
  const haddr_t offset = H5Dget_offset(impl_->id);
  if (offset == HADDR_UNDEF) return {};
  const std::int64_t size = look_at(impl_->file->path, ExitStatus::kData).bytes;
  const auto bytes = impl_->elements * static_cast<std::int64_t>(size_of(impl_->type));
  if (offset > static_cast<haddr_t>(size) || bytes > size - static_cast<std::int64_t>(offset)) {
    return {};
  }
  return static_cast<std::int64_t>(offset);
}

void Dataset::read_all(void* values) const {
  read_raw({Extents(impl_->extents.size(), 0), impl_->extents}, values);
}

void Dataset::read_raw(const Box& box, void* values) const {
  const Locked lock;
  const Handle space = select(*impl_, {box});
  const Handle memory = memory_space(box.elements());
  if (patiently_read([&] {
        return H5Dread(impl_->id, memory_type(impl_->type), memory.get(), space.get(), H5P_DEFAULT,
                       values);
      }) < 0) {
    throw_unread(fmt::format("{} cannot be read", label(*impl_)));
  }
}

void Dataset::write_raw(const std::vector<Box>& boxes, const void* values, Transfer transfer) {
  const Locked lock;
  const Handle space = select(*impl_, boxes);
  std::int64_t elements = 0;
  for (const Box& box : boxes) elements += box.elements();
  TRIREME_CHECK(H5Sget_select_npoints(space.get()) == elements,
                label(*impl_) + ": the boxes of one write overlap");
  const Handle memory = memory_space(elements);
  const Handle list(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  if (impl_->file->parallel && transfer == Transfer::kCollective) {
    H5Pset_dxpl_mpio(list.get(), H5FD_MPIO_COLLECTIVE);
  }
  const char nothing = 0;  // HDF5 requires an address even if nothing is written
  if (H5Dwrite(impl_->id, memory_type(impl_->type), memory.get(), space.get(), list.get(),
               elements > 0 ? values : &nothing) < 0) {
    throw Hdf5Error(fmt::format("{} cannot be written: {}", label(*impl_), library_words()));
  }
}

void Dataset::append_raw(const void* values, std::int64_t count) {
  const Locked lock;
  check_one_dimensional();
  const std::int64_t begin = impl_->extents[0];
  TRIREME_CHECK(count >= 0 && count <= kMaxElements - begin, "a dataset grows past all bounds");
  const auto size = static_cast<hsize_t>(begin + count);
  if (H5Dset_extent(impl_->id, &size) < 0) {
    throw Hdf5Error(
        fmt::format("{} cannot grow to {} elements: {}", label(*impl_), size, library_words()));
  }
  impl_->extents[0] = impl_->elements = begin + count;
  if (count > 0) write_raw({{{begin}, {count}}}, values, Transfer::kIndependent);
}

Dataset File::create_dataset(const std::string& name, ElementType type, const Extents& extents,
                             const Layout& layout) {
  const Locked lock;
  const std::string what = fmt::format("{}: {}", path(), name);
  TRIREME_CHECK(layout.chunk == 0 || extents.size() == 1,
                what + ": only a one-dimensional dataset may grow");
  for (const std::int64_t extent : extents) {
    TRIREME_CHECK(extent >= 0, what + ": negative extent");
  }
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_char_encoding(links.get(), H5T_CSET_UTF8);
  make_groups_above(impl_->id, name);
  const Handle space = data_space(extents, layout.chunk > 0);
  const Handle list = creation_list(layout, what);
  const hid_t id = H5Dcreate2(impl_->id, name.c_str(), file_type(type), space.get(), links.get(),
                              list.get(), H5P_DEFAULT);
  if (id < 0) throw Hdf5Error(fmt::format("{} cannot be created: {}", what, library_words()));
  return Dataset(adopt(impl_, name, id));
}

Dataset File::dataset(const std::string& name) const {
  const Locked lock;
  if (!exists(name)) throw DataError(fmt::format("{}: there is no dataset {}", path(), name));
  H5O_info_t object;
  if (!impl_->parallel &&
      H5Oget_info_by_name2(impl_->id, name.c_str(), &object, H5O_INFO_BASIC, H5P_DEFAULT) >= 0) {
    check_chunks(path(), name, object.addr);
  }
  const hid_t id = patiently_read([&] { return H5Dopen2(impl_->id, name.c_str(), H5P_DEFAULT); });
  if (id < 0) {
    throw_unread(fmt::format("{}: {} is not a readable dataset", path(), name));
  }
  return Dataset(adopt(impl_, name, id));
}

}  // namespace trireme::hdf5
