#include "checkpoint_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoint files are little-endian");

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'E', 'M', 'E', '\n'};

// The last 64 bytes of the file. Before them stands the table of data ranges.
struct Footer {
  char magic[8];
  std::uint64_t version;
  std::int64_t hdf5_bytes;       // size of the HDF5 part, where the table begins
  std::int64_t ranges;           // entries of the table, 16 bytes each
  std::uint64_t structure_hash;  // XXH3 of all bytes of the HDF5 part outside the ranges
  std::uint64_t table_hash;      // XXH3 of the table
  std::uint64_t reserved;        // 0
  std::uint64_t footer_hash;     // XXH3 of the 56 bytes before
};
static_assert(sizeof(Footer) == 64 && sizeof(ByteRange) == 16);
constexpr std::size_t kHashedFooter = sizeof(Footer) - sizeof(std::uint64_t);

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw CheckpointError(fmt::format("{}: {}", path, reason));
}

// Hash of the bytes [0, end) outside the ranges, which rise and do not overlap.
std::uint64_t structure_hash(const PosixFile& file, const std::vector<ByteRange>& ranges,
                             std::int64_t end) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> block(std::size_t{1} << 20);
  std::int64_t at = 0;
  const auto hash_until = [&](std::int64_t stop) {
    while (at < stop) {
      const auto count =
          static_cast<std::size_t>(std::min<std::int64_t>(stop - at, std::ssize(block)));
      file.read(at, block.data(), count);
      XXH3_64bits_update(state.get(), block.data(), count);
      at += static_cast<std::int64_t>(count);
    }
  };
  for (const ByteRange& range : ranges) {
    hash_until(range.offset);
    at = range.offset + range.bytes;
  }
  hash_until(end);
  return XXH3_64bits_digest(state.get());
}

// Whether the ranges rise, do not overlap and end before `end`.
bool in_order(const std::vector<ByteRange>& ranges, std::int64_t end) {
  std::int64_t at = 0;
  for (const ByteRange& range : ranges) {
    if (range.offset < at || range.bytes <= 0 || range.bytes > end - range.offset) return false;
    at = range.offset + range.bytes;
  }
  return at <= end;
}

Footer read_footer(const PosixFile& file) {
  const std::int64_t size = file.size();
  Footer footer{};
  if (size < static_cast<std::int64_t>(sizeof(footer))) refuse(file.path(), "not a checkpoint");
  file.read(size - static_cast<std::int64_t>(sizeof(footer)), &footer, sizeof(footer));
  if (std::memcmp(footer.magic, kMagic, sizeof(kMagic)) != 0) {
    refuse(file.path(),
           "not a complete checkpoint: its closing record is missing (cut short, or "
           "made or changed by another program)");
  }
  if (XXH3_64bits(&footer, kHashedFooter) != footer.footer_hash) {
    refuse(file.path(), "damaged: its closing record does not match its checksum");
  }
  if (footer.version != 1) {
    refuse(file.path(),
           fmt::format("format version {} is newer than this program (1)", footer.version));
  }
  const std::int64_t rest = size - static_cast<std::int64_t>(sizeof(footer));
  if (footer.ranges < 0 || footer.hdf5_bytes < 0 || footer.hdf5_bytes > rest ||
      footer.ranges != (rest - footer.hdf5_bytes) / 16 || (rest - footer.hdf5_bytes) % 16 != 0) {
    refuse(file.path(), fmt::format("damaged: {} bytes do not fit its closing record", size));
  }
  return footer;
}

Shape shape_of(const hdf5::Dataset& dataset, const std::string& path) {
  if (dataset.extents().size() > Shape::kMaxRank) {
    refuse(path, fmt::format("{} has {} dimensions", dataset.name(), dataset.extents().size()));
  }
  return Shape(std::span<const std::int64_t>(dataset.extents()));
}

DType dtype_of(const hdf5::Dataset& dataset, const std::string& path) {
  switch (dataset.type()) {
    case hdf5::ElementType::kF32:
      return DType::kF32;
    case hdf5::ElementType::kF64:
      return DType::kF64;
    case hdf5::ElementType::kI32:
      return DType::kI32;
    case hdf5::ElementType::kI64:
      return DType::kI64;
    default:
      refuse(path, fmt::format("{} holds {}", dataset.name(), hdf5::name_of(dataset.type())));
  }
}

CheckpointInfo read_info(const hdf5::File& file) {
  CheckpointInfo info;
  info.format_version = file.integer_attribute("/", "format_version");
  if (info.format_version != 1) {
    refuse(file.path(),
           fmt::format("format version {}, this program knows 1", info.format_version));
  }
  info.step = file.integer_attribute("/", "step");
  info.samples = file.integer_attribute("/", "samples");
  info.seed = static_cast<std::uint64_t>(file.integer_attribute("/", "seed"));
  info.config = file.string_attribute("/", "config");
  for (const std::string& name : file.attributes("/")) {
    if (name == "format_version" || name == "step" || name == "samples" || name == "seed" ||
        name == "config") {
      continue;
    }
    info.extra[name] = file.string_attribute("/", name);
  }
  return info;
}

std::vector<CheckpointTensor> read_tensors(const hdf5::File& file) {
  const hdf5::Dataset table = file.dataset(kChecksumsName);
  const std::vector<std::uint64_t> checksums = table.read<std::uint64_t>();
  const std::string names = file.string_attribute(kChecksumsName, kTensorNamesAttribute);
  std::vector<CheckpointTensor> tensors;
  for (const std::string& path : file.datasets_below("/")) {
    if (path == kChecksumsName) continue;
    const hdf5::Dataset dataset = file.dataset(path);
    CheckpointTensor tensor;
    tensor.name = path.substr(1);
    tensor.shape = shape_of(dataset, file.path());
    tensor.dtype = dtype_of(dataset, file.path());
    if (dataset.elements() > 0) {
      const auto offset = dataset.contiguous_offset();
      if (!offset) refuse(file.path(), path + " does not lie contiguous in the file");
      tensor.offset = *offset;
    }
    tensors.push_back(std::move(tensor));
  }
  std::string listed;
  for (const CheckpointTensor& tensor : tensors) listed += tensor.name + "\n";
  if (listed != names || checksums.size() != tensors.size()) {
    refuse(file.path(), "its tensors are not the ones in its table of checksums");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].checksum = checksums[i];
  return tensors;
}

}  // namespace

void append_record(PosixFile& file, std::vector<ByteRange> data) {
  std::sort(data.begin(), data.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  Footer footer{};
  std::memcpy(footer.magic, kMagic, sizeof(kMagic));
  footer.version = 1;
  footer.hdf5_bytes = file.size();
  footer.ranges = std::ssize(data);
  TRIREME_CHECK(in_order(data, footer.hdf5_bytes), file.path() + ": tensors overlap in the file");
  footer.structure_hash = structure_hash(file, data, footer.hdf5_bytes);
  const std::size_t table = data.size() * sizeof(ByteRange);
  footer.table_hash = XXH3_64bits(data.data(), table);
  footer.footer_hash = XXH3_64bits(&footer, kHashedFooter);
  file.write(footer.hdf5_bytes, data.data(), table);
  file.write(footer.hdf5_bytes + static_cast<std::int64_t>(table), &footer, sizeof(footer));
}

std::vector<ByteRange> check_record(const PosixFile& file) {
  try {
    const Footer footer = read_footer(file);
    std::vector<ByteRange> ranges(static_cast<std::size_t>(footer.ranges));
    const std::size_t table = ranges.size() * sizeof(ByteRange);
    file.read(footer.hdf5_bytes, ranges.data(), table);
    if (XXH3_64bits(ranges.data(), table) != footer.table_hash ||
        !in_order(ranges, footer.hdf5_bytes)) {
      refuse(file.path(), "damaged: its table of ranges does not match its checksum");
    }
    if (structure_hash(file, ranges, footer.hdf5_bytes) != footer.structure_hash) {
      refuse(file.path(), "damaged: its headers do not match their checksum");
    }
    return ranges;
  } catch (const RunFolderError& error) {
    throw CheckpointError(error.what());
  }
}

std::int64_t CheckpointTensor::bytes() const {
  return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
}

const CheckpointTensor* CheckpointContents::find(const std::string& name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const CheckpointTensor& tensor, const std::string& wanted) {
                                     return tensor.name < wanted;
                                   });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

CheckpointContents read_contents(const std::string& path) {
  try {
    const hdf5::File file = hdf5::File::open(path);
    CheckpointContents contents;
    contents.info = read_info(file);
    contents.tensors = read_tensors(file);
    return contents;
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  } catch (const Hdf5Error& error) {
    throw CheckpointError(error.what());
  }
}

CheckpointContents inspect_checkpoint(const std::string& path) {
  std::optional<PosixFile> file;
  try {
    file.emplace(path, O_RDONLY);
  } catch (const RunFolderError& error) {
    throw CheckpointError(error.what());
  }
  const std::vector<ByteRange> ranges = check_record(*file);
  CheckpointContents contents = read_contents(path);
  contents.file_bytes = file->size();
  std::vector<ByteRange> tensors;
  for (const CheckpointTensor& tensor : contents.tensors) {
    if (tensor.bytes() > 0) tensors.push_back({tensor.offset, tensor.bytes()});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  if (tensors != ranges) refuse(path, "its tensors do not lie where its closing record says");
  return contents;
}

}  // namespace trireme
