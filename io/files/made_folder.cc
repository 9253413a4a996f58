#include "io/files/made_folder.h"

#include <filesystem>
#include <ranges>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/files.h"

namespace trireme {
namespace {

constexpr auto kOfFolder = ExitStatus::kRunFolder;

// The folder, and those above it, without the root or the folder that we are in.
std::vector<std::string> levels_of(const std::string& folder) {
  std::vector<std::string> levels;
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended with a slash
  for (; path.has_filename(); path = path.parent_path()) levels.push_back(path.string());
  return levels;
}

}  // namespace

MadeFolder::MadeFolder(const std::string& folder) {
  const std::vector<std::string> levels = levels_of(folder);
  for (const std::string& level : std::views::reverse(levels)) {
    if (::mkdir(level.c_str(), 0777) == 0) made_.insert(made_.begin(), level);
  }
  if (!made_.empty() && made_.front() == levels.front()) return;
  try {
    make_folders(folder, kOfFolder);  // says what is wrong
  } catch (...) {
    remove();
    throw;
  }
}

MadeFolder::MadeFolder(const std::string& folder, std::size_t levels) : made_(levels_of(folder)) {
  if (levels < made_.size()) made_.resize(levels);
}

MadeFolder::~MadeFolder() {
  remove();
}

void MadeFolder::remove() const {
  for (const std::string& level : made_) {
    if (::rmdir(level.c_str()) != 0) return;
  }
}

}  // namespace trireme
