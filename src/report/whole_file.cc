#include "trireme/report/whole_file.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

void write_whole_file(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) throw RunFolderError(fmt::format("{} cannot be written", partial));
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) {
    throw RunFolderError(fmt::format("{} cannot be renamed: {}", partial, error.message()));
  }
}

}  // namespace trireme
