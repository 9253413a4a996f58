// What all shards have in common: an HDF5 file with a closing record that gets its name when it is
// complete.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/hdf5.h"

#include "io/hdf5/closing_record.h"

namespace trireme {

// Writes the shard at `path`. There is no file of that name until commit(), or until somebody else
// renames what finish() has made. Throws RunFolderError if the folder is unwritable or full.
class ShardFile {
 public:
  explicit ShardFile(std::string path);
  ~ShardFile();  // removes what was not committed
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  const std::string& path() const { return path_; }
  // Creates the file as `path`.partial, and has `fill` write all of it.
  void write(const std::function<void(hdf5::File&)>& fill);
  // Adds the closing record and syncs the file. The datasets of `data` have checksums of their own.
  void finish(std::span<const char* const> data);
  // Renames a finished file.
  void commit();

 private:
  std::string path_, partial_;
  bool created_ = false;
};

// Sets a text of fixed length: one of variable length would need a heap that no checksum covers.
void set_text(hdf5::File& file, const char* object, const char* name, const std::string& text);

struct CheckedFile {
  std::optional<std::vector<ByteRange>> record;  // other programs do not write one
  hdf5::File file;
};

// Opens a shard and checks its record before HDF5 sees the file. Throws DataError.
CheckedFile open_checked(const std::string& path);

// Checks that the record leaves out only these datasets. Throws DataError.
void check_ranges(const CheckedFile& shard, std::span<const char* const> data);

}  // namespace trireme
