#include "io/prepare/picture_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/pictures/picture.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Splits a path into the folder, without names that mean nothing, and the file's own name. Returns
// nothing if the file is hidden or in a hidden folder.
struct PicturePath {
  std::string folder, name;
};
std::optional<PicturePath> picture_path(std::string_view path) {
  PicturePath result;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty() || name == ".") continue;
    if (name.front() == '.' && name != "..") return {};
    if (begin > path.size()) {
      result.name = name;
    } else {
      if (!result.folder.empty()) result.folder += '/';
      result.folder += name;
    }
  }
  return result;
}

std::string too_large(const std::string& name, std::uint64_t bytes) {
  return fmt::format("{}: {} bytes in one file; files of at most {} are read", name, bytes,
                     kMostPictureBytes);
}

}  // namespace

PictureFile read_picture_file(const InputFile& file, std::string folder) {
  PictureFile read{file.path, std::move(folder), {}, {}};
  if (file.size > kMostPictureBytes) {
    read.problem = too_large(file.path, file.size);
    return read;
  }
  try {
    InputStream stream(file.path, -1);
    read.bytes.resize(file.size);
    read.bytes.resize(stream.read(read.bytes.data(), file.size));
  } catch (const DataError& error) {
    read.bytes.clear();
    read.problem = error.what();
  }
  return read;
}

PictureSource::PictureSource(const std::vector<std::string>& inputs, int standard_input)
    : standard_input_(standard_input) {
  bool known = true;
  for (const std::string& path : inputs) {
    Input input;
    input.is_folder = path != "-" && is_input_folder(path);
    input.file = input_file(path);
    if (input.is_folder) input.files = files_below(path, &left_out_);
    for (const InputFile& file : input.files) bytes_total_ += file.size;
    bytes_total_ += input.file.size;
    known = known && (input.is_folder || input.file.regular);
    inputs_.push_back(std::move(input));
  }
  if (!known) bytes_total_ = 0;
}

bool PictureSource::next(PictureFile& file) {
  for (; next_input_ < inputs_.size(); ++next_input_) {
    const Input& input = inputs_[next_input_];
    if (input.is_folder ? next_of_folder(input, file) : next_of_archive(input, file)) return true;
    next_file_ = 0;
  }
  return false;
}

bool PictureSource::next_of_folder(const Input& input, PictureFile& file) {
  // The folder's own name counts: it may be train or test.
  const fs::path root = fs::absolute(input.file.path).lexically_normal();
  const std::string own = (root.has_filename() ? root : root.parent_path()).filename().string();
  while (next_file_ < input.files.size()) {
    const InputFile& found = input.files[next_file_++];
    bytes_read_ += found.size;
    const auto path = picture_path(found.path.substr(input.file.path.size()));
    if (!path || !has_picture_name(path->name)) {
      ++left_out_;
      continue;
    }
    file = read_picture_file(found, path->folder.empty() ? own : own + "/" + path->folder);
    return true;
  }
  return false;
}

bool PictureSource::next_of_archive(const Input& input, PictureFile& file) {
  if (!archive_) archive_.emplace(input.file.path, standard_input_);
  TarMember member;
  while (archive_->next(member)) {
    const auto path = picture_path(member.path);
    if (!member.regular || !path || !has_picture_name(path->name)) {
      if (!member.path.ends_with('/')) ++left_out_;  // folders are no files
      continue;
    }
    const std::string archive = input.file.path == "-" ? "standard input" : input.file.path;
    file = {fmt::format("{}: {}", archive, member.path), path->folder, {}, {}};
    if (member.size > kMostPictureBytes) {
      file.problem = too_large(file.name, member.size);
    } else {
      file.bytes = archive_->contents();
    }
    return true;
  }
  bytes_read_ += archive_->bytes_read();
  archive_.reset();
  return false;
}

}  // namespace trireme
