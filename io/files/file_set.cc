#include "trireme/io/file_set.h"

#include <optional>
#include <ranges>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/together.h"

#include "io/files/posix_file.h"
#include "io/files/set_folder.h"

namespace trireme {
namespace {

constexpr auto kStatus = ExitStatus::kRunFolder;
constexpr std::string_view kUnfinished = ".partial";

std::vector<std::string> names_of(const std::vector<PlannedFile>& files) {
  std::vector<std::string> names;
  for (const PlannedFile& file : files) names.push_back(file.name);
  return names;
}

}  // namespace

struct FileSetWriter::Impl {
  Communicator& comm;
  std::string folder;
  std::vector<PlannedFile> files;

  std::vector<std::optional<PosixFile>> open = {};  // where this rank has written
  std::optional<SetFolder> set = {};                // on rank 0
  std::size_t made = 0;                             // files that this writer has begun, on rank 0
  bool finished = false;

  bool first() const { return comm.rank() == 0; }
  std::string unfinished(const PlannedFile& file) const {
    return fmt::format("{}/{}{}", folder, file.name, kUnfinished);
  }

  void make_files(const std::function<bool(std::string_view)>& belongs);
  void make_file(const PlannedFile& file);
  void remove_unfinished();
};

// On rank 0.
void FileSetWriter::Impl::make_file(const PlannedFile& file) {
  ++made;
  PosixFile out = make_file_anew(unfinished(file));
  const std::int64_t all = std::ssize(file.head) + file.bytes;
  out.reserve(all);
  out.write(0, file.head.data(), file.head.size());
  out.truncate(all);
  out.sync();  // no other rank of this node need write into this file, and sync it
}

// On rank 0.
void FileSetWriter::Impl::make_files(const std::function<bool(std::string_view)>& belongs) {
  set.emplace(folder, names_of(files));
  const auto names = names_in(folder, kStatus).value_or(std::vector<std::string>());
  for (const std::string& name : std::views::reverse(names)) {
    if (set->left(name)) {
      remove_if_there(folder + "/" + name, kStatus);
    } else if (belongs(name)) {
      throw RunFolderError(fmt::format("{}: holds {} already: give a new folder", folder, name));
    } else if (name.ends_with(kUnfinished) &&
               belongs(std::string_view(name).substr(0, name.size() - kUnfinished.size()))) {
      throw RunFolderError(fmt::format(
          "{}/{}: another program has left it: remove it, or give a new folder", folder, name));
    }
  }
  try {
    for (const PlannedFile& file : files) make_file(file);
  } catch (...) {  // a full disk: the constructor throws, so no destructor runs
    remove_unfinished();
    throw;
  }
}

void FileSetWriter::Impl::remove_unfinished() {
  for (std::size_t f = 0; f < made; ++f) {
    ::unlink(unfinished(files[f]).c_str());
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
    impl_->set->give_names(names_of(impl_->files), {});
    impl_->set.reset();
  });
  impl_->finished = true;
}

}  // namespace trireme
