// Decides which datasets are read: those whose elements are stored in the file itself.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

struct KnownFilter {
  H5Z_filter_t id;
  const char* name;
};
constexpr std::array<KnownFilter, 5> kFilters = {{{H5Z_FILTER_DEFLATE, "gzip"},
                                                  {H5Z_FILTER_SHUFFLE, "shuffle"},
                                                  {H5Z_FILTER_FLETCHER32, "fletcher32"},
                                                  {H5Z_FILTER_SZIP, "szip"},
                                                  {32000, "lzf"}}};

[[noreturn]] void refuse(const std::string& what, const std::string& reason) {
  throw DataError(fmt::format("{} {}", what, reason));
}

void check_filter(hid_t list, unsigned index, const std::string& what) {
  unsigned flags = 0, config = 0;
  std::size_t values = 0;
  const H5Z_filter_t id =
      H5Pget_filter2(list, index, &flags, &values, nullptr, 0, nullptr, &config);
  const auto known = std::find_if(kFilters.begin(), kFilters.end(),
                                  [id](const KnownFilter& filter) { return filter.id == id; });
  if (known == kFilters.end()) {
    refuse(what, fmt::format("is stored with filter {} of HDF5, which is not read; compress it "
                             "with `h5repack -f GZIP=4`",
                             id));
  }
  if (H5Zfilter_avail(id) <= 0) {
    refuse(what, fmt::format("is compressed with {}, which HDF5 lacks here; compress it with "
                             "`h5repack -f GZIP=4`",
                             known->name));
  }
}

}  // namespace

void check_storage(hid_t dataset, const std::string& what) {
  const Handle list(H5Dget_create_plist(dataset), H5Pclose);
  if (!list.valid()) refuse(what, "has no readable layout: " + library_words());
  const H5D_layout_t layout = H5Pget_layout(list.get());
  if (layout == H5D_VIRTUAL) {
    refuse(what, "is a virtual dataset, whose elements lie in other files; copy them into one");
  }
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT) {
    refuse(what, "has a layout that is not read");
  }
  if (H5Pget_external_count(list.get()) != 0) {
    refuse(what, "has external storage: its elements lie in other files; copy them into one");
  }
  const int filters = H5Pget_nfilters(list.get());
  for (int i = 0; i < filters; ++i) check_filter(list.get(), static_cast<unsigned>(i), what);
}

}  // namespace trireme::hdf5
