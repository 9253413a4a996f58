#include "io/files/input_files.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr ExitStatus kOfInput = ExitStatus::kData;

// Adds the files below a folder. `above`: the folders that hold it, and itself.
void add_below(const std::string& folder, std::vector<FileFacts>& above,
               std::vector<InputFile>& files, std::int64_t* others) {
  for (const std::string& name : names_in(folder, kOfInput).value_or(std::vector<std::string>())) {
    std::string path = folder.ends_with('/') ? folder + name : folder + "/" + name;
    const FileFacts facts = look_at(path, kOfInput);
    if (facts.is_folder()) {
      // A link to a folder that holds it would be followed for ever.
      const bool again = std::ranges::any_of(above, [&](const FileFacts& one) {
        return one.device == facts.device && one.number == facts.number;
      });
      if (again) continue;
      above.push_back(facts);
      add_below(path, above, files, others);
      above.pop_back();
    } else if (facts.is_file()) {
      files.push_back({std::move(path), static_cast<std::uint64_t>(facts.bytes), true});
    } else if (others != nullptr) {
      ++*others;
    }
  }
}

}  // namespace

bool is_input_folder(const std::string& path) {
  const FileFacts facts = look_ahead(path, kOfInput);
  if (!facts.is_there()) throw_unreadable(kOfInput, path, "cannot be read", ENOENT);
  return facts.is_folder();
}

InputFile input_file(const std::string& path) {
  if (path == "-") return {path, 0, false};
  const FileFacts facts = look_at(path, kOfInput);
  if (!facts.is_file()) return {path, 0, false};
  return {path, static_cast<std::uint64_t>(facts.bytes), true};
}

std::vector<InputFile> files_below(const std::string& folder, std::int64_t* others) {
  std::vector<InputFile> files;
  std::vector<FileFacts> above = {look_at(folder, kOfInput)};
  add_below(folder, above, files, others);
  std::ranges::sort(files, {}, &InputFile::path);
  return files;
}

InputStream::InputStream(const std::string& path, int standard_input)
    : file_(path == "-" ? FileReader::of_descriptor("standard input", kOfInput, standard_input)
                        : FileReader(path, kOfInput)) {}

std::size_t InputStream::read(void* bytes, std::size_t count) {
  std::size_t size = 0;
  while (size < count) {  // pipes give little at a time
    const std::size_t got = file_.read(static_cast<char*>(bytes) + size, count - size);
    if (got == 0) break;
    size += got;
  }
  return size;
}

}  // namespace trireme
