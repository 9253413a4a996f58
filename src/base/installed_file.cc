#include "trireme/base/installed_file.h"

#include "trireme/base/files.h"

namespace trireme {

namespace fs = std::filesystem;

std::optional<fs::path> find_near_program(const std::vector<std::string>& names) {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path folder = program.parent_path(); folder != folder.root_path();
       folder = folder.parent_path()) {
    for (const std::string& name : names) {
      const fs::path path = folder / name;
      if (look_ahead(path.string(), ExitStatus::kUsage).is_there()) return path;
    }
  }
  return {};
}

}  // namespace trireme
