#include "trireme/base/kernel_files.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

namespace trireme {

namespace fs = std::filesystem;

std::string kernel_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // an iterator would throw where a read fails
  return text.str();
}

std::string first_line_of(const fs::path& path) {
  const std::string text = kernel_text(path);
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> kernel_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme
