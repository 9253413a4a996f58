#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_branch.h"

namespace trireme {
namespace {

constexpr std::string_view kPrefix = "step-", kSuffix = ".h5";

}  // namespace

std::optional<std::int64_t> step_of_checkpoint(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return {};
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(kSuffix.size(), name.size()));
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return {};
  return step;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{:08}{}", folder, kPrefix, step, kSuffix);
}

std::vector<CheckpointFile> list_checkpoints(const std::string& folder) {
  constexpr ExitStatus kOfCheckpoints = ExitStatus::kRunFolder;
  std::vector<CheckpointFile> files;
  if (!look_ahead(folder, kOfCheckpoints).is_there()) return files;
  const auto names = names_in(folder, kOfCheckpoints);
  if (!names) return files;
  const std::optional<RunBranch> branch = read_branch(folder + "/..");
  const bool leaving = branch && branch->unfinished;
  for (const std::string& name : *names) {
    const auto step = step_of_checkpoint(name);
    if (!step || (leaving && *step > branch->unfinished->after_step)) continue;
    const std::string path = folder + "/" + name;
    // A writer may have removed it since.
    if (const FileFacts facts = look_at(path, kOfCheckpoints); facts.is_file()) {
      files.push_back({*step, path, facts.bytes});
    }
  }
  std::sort(files.begin(), files.end(), [](const CheckpointFile& a, const CheckpointFile& b) {
    return a.step != b.step ? a.step < b.step : a.path < b.path;
  });
  return files;
}

// A name is step-00001000.h5.7.partial, where 7 is the generation. The file of a later holder
// stays, even if we do not know of that holder yet.
void remove_unfinished_checkpoints(const std::string& folder, std::int64_t generation) {
  const auto names = names_in(folder, ExitStatus::kRunFolder);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::filesystem::path path(name);
    if (path.extension() != ".partial") continue;
    const std::string number = path.stem().extension().string();
    std::int64_t its = 0;
    std::from_chars(number.data() + std::min<std::size_t>(1, number.size()),
                    number.data() + number.size(), its);
    if (its <= generation) remove_if_there(folder + "/" + name, ExitStatus::kRunFolder);
  }
}

LatestCheckpoint open_latest_checkpoint(Communicator& comm, const std::string& folder) {
  // Only rank 0 looks, because another node may see the folder as it was a moment ago.
  // A path may hold any byte but zero.
  const std::string paths = comm.read_once([&] {
    std::string newest_first;
    for (const CheckpointFile& file : list_checkpoints(folder)) {
      newest_first.insert(0, file.path + '\0');
    }
    return newest_first;
  });
  LatestCheckpoint latest;
  for (std::size_t at = 0; at < paths.size(); at = paths.find('\0', at) + 1) {
    try {
      latest.checkpoint = Checkpoint::open(comm, paths.c_str() + at);
      break;
    } catch (const CheckpointError& error) {
      if (error.unreadable()) throw;
      latest.refused.emplace_back(error.what());
    }
  }
  return latest;
}

}  // namespace trireme
