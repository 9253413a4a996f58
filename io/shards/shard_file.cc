#include "io/shards/shard_file.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

// The place of the dataset's elements in the file; an offset of -1 if they are not contiguous.
ByteRange range_of(const hdf5::Dataset& dataset) {
  return {dataset.contiguous_offset().value_or(-1),
          dataset.elements() * static_cast<std::int64_t>(hdf5::size_of(dataset.type()))};
}

}  // namespace

ShardFile::ShardFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}

ShardFile::~ShardFile() {
  if (created_) ::unlink(partial_.c_str());
}

void ShardFile::write(const std::function<void(hdf5::File&)>& fill) {
  try {
    make_file_anew(partial_);  // HDF5 would follow a link
    hdf5::File file = hdf5::File::create(partial_);
    created_ = true;
    fill(file);
    file.close();
  } catch (const Hdf5Error& error) {
    throw RunFolderError(error.what());
  }
}

void ShardFile::finish(std::span<const char* const> data) {
  std::vector<ByteRange> ranges;
  {
    const hdf5::File file = hdf5::File::open(partial_);
    for (const char* name : data) {
      const ByteRange range = range_of(file.dataset(name));
      if (range.bytes == 0) continue;
      TRIREME_CHECK(range.offset >= 0, fmt::format("{}: {} has no place in it", partial_, name));
      ranges.push_back(range);
    }
  }
  PosixFile file(partial_, O_RDWR);
  append_record(file, std::move(ranges));
  file.sync();
}

void ShardFile::commit() {
  rename_file(partial_, path_, ExitStatus::kRunFolder);
  created_ = false;
  sync_folder(folder_above(path_));
}

void set_text(hdf5::File& file, const char* object, const char* name, const std::string& text) {
  file.set_attribute(object, name, text, hdf5::StringKind::kFixed);
}

CheckedFile open_checked(const std::string& path) {
  std::optional<std::vector<ByteRange>> record;
  std::int64_t size = 0;
  {
    const PosixFile raw(path, O_RDONLY, ExitStatus::kData);
    size = raw.size();
    record = check_record(raw);
  }
  CheckedFile opened{std::move(record), hdf5::File::open(path)};
  const std::int64_t rest = size - opened.file.hdf5_bytes();
  if (!opened.record && rest != 0) {
    throw DataError(fmt::format(
        "{}: damaged: its last {} bytes are neither HDF5 nor a closing record", path, rest));
  }
  return opened;
}

void check_ranges(const CheckedFile& shard, std::span<const char* const> data) {
  if (!shard.record) return;
  std::vector<ByteRange> expected;
  for (const char* name : data) {
    if (!shard.file.exists(name)) continue;
    const ByteRange range = range_of(shard.file.dataset(name));
    if (range.bytes > 0) expected.push_back(range);
  }
  std::sort(expected.begin(), expected.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  if (expected != *shard.record) {
    throw DataError(shard.file.path() + ": its datasets do not lie where its closing record says");
  }
}

}  // namespace trireme
