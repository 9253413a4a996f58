#include "cli/site_file.h"

#include <cstdlib>

#include "trireme/base/files.h"
#include "trireme/base/installed_file.h"
#include "trireme/base/small_file.h"

namespace trireme::cli {

namespace fs = std::filesystem;

std::optional<fs::path> find_jobs_folder() {
  const auto found = find_near_program({"share/trireme/jobs/step.sh", "jobs/step.sh"});
  if (!found) return {};
  return found->parent_path();
}

Site read_site(const std::string& given) {
  const auto read = [](const fs::path& path, const std::string& what) {
    return site_from_ini(read_small_file(what, path.string()), path.string());
  };
  if (!given.empty()) return read(given, "--site");
  const char* of_environment = std::getenv("TRIREME_SITE");
  if (of_environment != nullptr && *of_environment != '\0') {
    return read(of_environment, "TRIREME_SITE");
  }
  const std::optional<fs::path> folder = find_jobs_folder();
  if (!folder) return {};
  const fs::path usual = *folder / "site.ini";
  if (!look_at(usual.string(), ExitStatus::kUsage).is_there()) return {};
  return read(usual, "the site file");
}

}  // namespace trireme::cli
