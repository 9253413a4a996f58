// Files that ranks write together, and that get their names only when all of them are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

// A file that will be written.
struct PlannedFile {
  std::string name;
  std::string head;        // its first bytes, which are known from the beginning
  std::int64_t bytes = 0;  // that follow the head, zero where no rank writes them
};

class FileSetWriter {
 public:
  // Collective over comm, which must outlive it. `belongs`: whether a file of that name in the
  // folder, or a file of that name and the ending .partial, is of such a set, too. What a killed
  // writer has left is replaced. Throws RunFolderError if the folder cannot be written or is full,
  // holds other files of such a set already, or another writer is at work there.
  FileSetWriter(Communicator& comm, const std::string& folder, std::vector<PlannedFile> files,
                const std::function<bool(std::string_view name)>& belongs);
  // Removes what is not finished.
  ~FileSetWriter();
  FileSetWriter(const FileSetWriter&) = delete;
  FileSetWriter& operator=(const FileSetWriter&) = delete;

  // Writes `bytes` bytes of files[file], from byte `first` after its head on. Not collective; every
  // byte is some rank's. Throws RunFolderError.
  void write(std::size_t file, std::int64_t first, const void* from, std::int64_t bytes);

  // Collective over comm. The files get their names in their order: where the last one is, all are
  // there. Throws RunFolderError, the same on all ranks.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
