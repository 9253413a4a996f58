// The paths of a configuration: written absolute into a run's config.ini, and read from there by a
// start that may be called from elsewhere, of a folder that may have been moved, copied or linked.
#include <algorithm>
#include <filesystem>
#include <regex>

#include <fmt/format.h>

#include "trireme/base/files.h"
#include "trireme/base/ini_text.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string absolute_path(const std::string& path) {
  std::error_code error;  // a working directory that was removed has no path
  const fs::path whole = fs::absolute(path, error);
  if (error) return path;
  // The folder above a link is another one than that of its target: only the system may follow
  // "..".
  const bool climbs = std::ranges::find(whole, fs::path("..")) != whole.end();
  fs::path shortest = climbs ? whole : whole.lexically_normal();
  if (!shortest.has_filename() && shortest.has_relative_path()) shortest = shortest.parent_path();
  return shortest.string();
}

// Whether a folder holds what every start of a run leaves, or checkpoints.
bool holds_a_run(const std::string& folder) {
  for (const char* name : {"lease.generation", "branch.json"}) {
    if (look_at(fmt::format("{}/{}", folder, name), ExitStatus::kRunFolder).is_file()) return true;
  }
  const std::string checkpoints = folder + "/checkpoints";
  return look_at(checkpoints, ExitStatus::kRunFolder).is_folder() &&
         !list_checkpoints(checkpoints).empty();
}

// The keys of one start, with the values that ask for nothing.
OptionValues keys_of_start() {
  OptionValues keys;
  for (const OptionDescription& key : describe_config().options) {
    if (key.on_change == OnChange::kOfStart) keys.emplace(key.name, key.default_text);
  }
  return keys;
}

// comm.algorithms with `library` for those of MPI's own algorithms that earlier versions could
// name.
std::string known_algorithms(const IniLine& setting) {
  static const std::regex named("=library-(ring|tree|doubling|halving)\\b");
  std::string known = std::regex_replace(setting.value, named, "=library");
  if (known != setting.value) {
    report_line(
        fmt::format("{}: {} = {}: MPI chooses its algorithm itself now, so {} takes its place",
                    setting.where, setting.name, shown(setting.value), shown(known)));
  }
  return known;
}

}  // namespace

std::optional<std::string> run_of_config(const std::string& path) {
  for (const fs::path& file : {fs::path(path), fs::path(resolved(path))}) {
    if (file.filename() != "config.ini") continue;
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    if (!holds_a_run(folder)) continue;
    // An earlier branch of a run belongs to the run.
    const fs::path above = fs::path(absolute_path(folder)).parent_path();
    const std::string whole = above.parent_path().string();
    return above.filename() == "superseded" && holds_a_run(whole) ? whole : folder;
  }
  return {};
}

Config with_absolute_paths(Config config) {
  visit_paths(config, [](std::string& path) { path = absolute_path(path); });
  return config;
}

std::string read_run_config(const std::string& path) {
  const std::string text = read_config_file(path);
  const std::optional<std::string> run = run_of_config(path);
  if (!run) return text;
  const OptionValues of_start = keys_of_start();
  bool names_folder = false;
  std::string edited =
      edit_ini(text, path, [&](const IniLine& setting) -> std::optional<std::string> {
        if (setting.name == "run.folder") {
          names_folder = true;
          return run;
        }
        if (setting.name == "comm.algorithms") return known_algorithms(setting);
        const auto key = of_start.find(setting.name);
        if (key == of_start.end()) return setting.value;
        if (setting.value != key->second) {
          report_line(
              fmt::format("{}: {} = {} was for an earlier start and is ignored: give it as a flag",
                          setting.where, setting.name, shown(setting.value)));
        }
        return std::nullopt;
      });
  // An import writes the model's keys alone.
  const auto folder_of_run = [&](const IniLine&) { return run; };
  if (!names_folder) edited += edit_ini("\n[run]\nfolder = .\n", path, folder_of_run);
  return edited;
}

}  // namespace trireme
