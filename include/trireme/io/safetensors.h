// Files of named tensors in the format safetensors, as Hugging Face defined it (io/CHECKPOINTS.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

// One tensor of a set of files. Nothing in it was taken from a file unchecked.
struct SafetensorsEntry {
  std::string name;
  std::string type;                 // as the format names it: "F32", "BF16", "I64"
  std::vector<std::int64_t> shape;  // of any number of dimensions
  std::size_t file = 0;             // which of the set's
  std::int64_t offset = 0;          // of its first byte in the file
  std::int64_t bytes = 0;

  std::string shape_text() const;  // "(4, 64)"
};

// Reads the header of one file, and checks all that it says against the file's size: the ranges of
// the tensors cover the rest of the file without gaps and overlaps. Sorted by offset. Throws
// DataError.
std::vector<SafetensorsEntry> read_safetensors_header(const std::string& path);

// The largest header that is read, in bytes. It describes more than 100,000 tensors.
inline constexpr std::int64_t kMostSafetensorsHeader = std::int64_t{16} << 20;

// A set of files that can be read. Each rank opens those that it reads, and not all at a time.
class SafetensorsFiles {
 public:
  // Collective over comm. `path` is one file, or a folder that holds model.safetensors or
  // model.safetensors.index.json and the files that it names. Rank 0 alone reads headers and index.
  // Throws DataError, the same on all ranks.
  static SafetensorsFiles open(Communicator& comm, const std::string& path);

  // Sorted by name.
  const std::vector<SafetensorsEntry>& tensors() const;
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr if there is none
  const std::string& path_of(const SafetensorsEntry& entry) const;

  // Reads `bytes` bytes of a tensor, from its byte `first` on. Throws DataError.
  void read(const SafetensorsEntry& entry, std::int64_t first, void* to, std::int64_t bytes) const;

 private:
  struct Impl;
  explicit SafetensorsFiles(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A tensor that will be written.
struct SafetensorsTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Writes a set of files together with other ranks: FOLDER/model.safetensors, or files of at most
// `most_bytes` of tensors each (one tensor at least) and FOLDER/model.safetensors.index.json. Files
// get their names when all of them are complete and on the disk.
class SafetensorsWriter {
 public:
  // Collective over comm, which must outlive it. All elements are of `dtype`: fp32, bf16 or fp16.
  // `beside`: names and texts of files that belong to them; they get their names last. Throws
  // RunFolderError if the folder cannot be written or is full, holds such files already, or another
  // writer is at work there.
  SafetensorsWriter(Communicator& comm, const std::string& folder,
                    std::vector<SafetensorsTensor> tensors, DType dtype, std::int64_t most_bytes,
                    const std::map<std::string, std::string, std::less<>>& beside = {});
  // Removes what is not finished.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes `bytes` bytes of tensors[tensor], from its byte `first` on. Not collective; every byte
  // is some rank's. Throws RunFolderError.
  void write(std::size_t tensor, std::int64_t first, const void* from, std::int64_t bytes);

  // Collective over comm. Returns the files' names. Throws RunFolderError, the same on all ranks.
  std::vector<std::string> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
