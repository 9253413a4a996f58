#include "trireme/io/file_set.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/together.h"

#include "posix_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".partial";

// Of another writer, or of one that was killed.
[[noreturn]] void refuse_unfinished(const std::string& path) {
  throw RunFolderError(fmt::format(
      "{}: another export is writing it, or has left it: remove it, or give a new folder", path));
}

}  // namespace

struct FileSetWriter::Impl {
  Communicator& comm;
  std::string folder;
  std::vector<PlannedFile> files;

  std::vector<std::optional<PosixFile>> open = {};  // where this rank has written
  std::size_t made = 0;                             // files that this writer has begun, on rank 0
  bool finished = false;

  bool first() const { return comm.rank() == 0; }
  std::string path(const PlannedFile& file) const { return folder + "/" + file.name; }
  std::string unfinished(const PlannedFile& file) const {
    return path(file) + std::string(kUnfinished);
  }

  void make_files(const std::function<bool(std::string_view)>& belongs);
  void make_file(const PlannedFile& file);
  void remove_unfinished();
};

// On rank 0. Never opens a file that is there: it may be one that another export is writing.
void FileSetWriter::Impl::make_file(const PlannedFile& file) {
  const std::string partial = unfinished(file);
  std::error_code ignored;
  if (fs::exists(partial, ignored)) refuse_unfinished(partial);
  PosixFile out(partial, O_RDWR | O_CREAT | O_EXCL);
  ++made;
  const std::int64_t all = std::ssize(file.head) + file.bytes;
  out.reserve(all);
  out.write(0, file.head.data(), file.head.size());
  out.truncate(all);
  out.sync();  // no other rank of this node need write into this file, and sync it
}

// On rank 0.
void FileSetWriter::Impl::make_files(const std::function<bool(std::string_view)>& belongs) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (belongs(name)) {
      throw RunFolderError(fmt::format("{}: holds {} already: give a new folder", folder, name));
    }
    // The other export may divide its data into other files.
    if (!name.ends_with(kUnfinished)) continue;
    if (belongs(std::string_view(name).substr(0, name.size() - kUnfinished.size()))) {
      refuse_unfinished(folder + "/" + name);
    }
  }
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  try {
    for (const PlannedFile& file : files) make_file(file);
  } catch (...) {  // a full disk: the constructor throws, so no destructor runs
    remove_unfinished();
    throw;
  }
}

void FileSetWriter::Impl::remove_unfinished() {
  for (std::size_t f = 0; f < made; ++f) {
    std::error_code ignored;
    fs::remove(unfinished(files[f]), ignored);
  }
}

FileSetWriter::FileSetWriter(Communicator& comm, const std::string& folder,
                             std::vector<PlannedFile> files,
                             const std::function<bool(std::string_view name)>& belongs)
    : impl_(std::make_unique<Impl>(Impl{comm, folder, std::move(files)})) {
  impl_->open.resize(impl_->files.size());
  run_together(comm, [&] {
    if (impl_->first()) impl_->make_files(belongs);
  });
}

FileSetWriter::~FileSetWriter() {
  if (impl_->first() && !impl_->finished) impl_->remove_unfinished();
}

void FileSetWriter::write(std::size_t file, std::int64_t first, const void* from,
                          std::int64_t bytes) {
  const PlannedFile& planned = impl_->files.at(file);
  TRIREME_CHECK(first >= 0 && first + bytes <= planned.bytes,
                "a write past the end of " + planned.name);
  std::optional<PosixFile>& open = impl_->open[file];
  if (!open) open.emplace(impl_->unfinished(planned), O_RDWR);
  open->write(std::ssize(planned.head) + first, from, static_cast<std::size_t>(bytes));
}

void FileSetWriter::finish() {
  run_together(impl_->comm, [&] {
    for (std::optional<PosixFile>& file : impl_->open) {
      if (file) file->sync();
    }
  });
  run_together(impl_->comm, [&] {
    if (!impl_->first()) return;
    for (const PlannedFile& file : impl_->files) {
      std::error_code error;
      fs::rename(impl_->unfinished(file), impl_->path(file), error);
      if (error) throw RunFolderError(fmt::format("{}: {}", impl_->path(file), error.message()));
    }
    sync_folder(impl_->folder);
  });
  impl_->finished = true;
}

}  // namespace trireme
