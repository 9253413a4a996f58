#include "io/checkpoints/checkpoint_file.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/hdf5.h"

#include "io/hdf5/closing_record.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw CheckpointError(fmt::format("{}: {}", path, reason));
}

// Whether a file of `file_bytes` bytes can hold this many elements. The extents come from a header,
// which may be damaged, so their product may overflow 64 bits.
bool fits(std::span<const std::int64_t> extents, double file_bytes) {
  double elements = 1.0;
  for (const std::int64_t extent : extents) {
    if (extent < 0) return false;
    elements *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  }
  return elements <= file_bytes;
}

Shape shape_of(const hdf5::Dataset& dataset, const std::string& path) {
  if (dataset.extents().size() > Shape::kMaxRank) {
    refuse(path, fmt::format("{} has {} dimensions", dataset.name(), dataset.extents().size()));
  }
  const auto file_bytes = static_cast<double>(look_at(path, ExitStatus::kCheckpoint).bytes);
  if (!fits(dataset.extents(), file_bytes)) {
    refuse(path, fmt::format("{} is ({}): more than the file holds", dataset.name(),
                             fmt::join(dataset.extents(), ", ")));
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
  // It may be a token shard, for example, which ends with a closing record too.
  if (!file.has_attribute("/", "step")) refuse(file.path(), "not a checkpoint");
  CheckpointInfo info;
  info.format_version = file.integer_attribute("/", "format_version");
  if (info.format_version != 1) {
    refuse(file.path(),
           fmt::format("format version {}, this program knows 1", info.format_version));
  }
  info.step = file.integer_attribute("/", "step");
  info.samples = file.integer_attribute("/", "samples");
  for (const auto& [name, value] : {std::pair("step", info.step), {"samples", info.samples}}) {
    constexpr std::int64_t kMost = std::int64_t{1} << 53;
    if (value >= 0 && value <= kMost) continue;
    refuse(file.path(), fmt::format("its {} is {}: 0 to {} can be", name, value, kMost));
  }
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
  shape_of(table, file.path());  // checks the size before memory is allocated for it
  const std::vector<std::uint64_t> checksums = table.read<std::uint64_t>();
  const std::string names = file.string_attribute(kChecksumsName, kTensorNamesAttribute);
  std::vector<CheckpointTensor> tensors;
  for (const std::string& path : file.datasets_below("/")) {
    if (path == kChecksumsName || path.starts_with(kTextsGroup)) continue;
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

// Checks the closing record. Returns the data ranges that it lists, and sets `size` to the file's
// size.
std::vector<ByteRange> checked_ranges(const std::string& path, std::int64_t& size) {
  const PosixFile file(path, O_RDONLY, ExitStatus::kCheckpoint);
  size = file.size();
  auto ranges = check_record(file);
  if (ranges) return std::move(*ranges);
  refuse(path,
         "not a complete checkpoint: its closing record is missing (cut short, or made or changed "
         "by another program)");
}

}  // namespace

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

CheckpointTexts read_checkpoint_texts(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  try {
    const hdf5::File file = hdf5::File::open(path);
    CheckpointTexts texts;
    for (const std::string& name : file.datasets_below("/")) {
      if (!name.starts_with(kTextsGroup)) continue;
      texts.emplace(name.substr(kTextsGroup.size()), file.text(name, kMostBytes));
    }
    return texts;
  } catch (const DataError& error) {
    rethrow_as(ExitStatus::kCheckpoint, error);
  } catch (const Hdf5Error& error) {
    rethrow_as(ExitStatus::kCheckpoint, error);
  }
}

CheckpointContents read_contents(const std::string& path) {
  try {
    const hdf5::File file = hdf5::File::open(path);
    CheckpointContents contents;
    contents.info = read_info(file);
    contents.tensors = read_tensors(file);
    return contents;
  } catch (const DataError& error) {
    rethrow_as(ExitStatus::kCheckpoint, error);
  } catch (const Hdf5Error& error) {
    rethrow_as(ExitStatus::kCheckpoint, error);
  }
}

CheckpointContents inspect_checkpoint(const std::string& path) {
  std::int64_t size = 0;
  const std::vector<ByteRange> ranges = checked_ranges(path, size);
  CheckpointContents contents = read_contents(path);
  contents.file_bytes = size;
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
