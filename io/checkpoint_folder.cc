#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_branch.h"
#include "trireme/io/together.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

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
  std::vector<CheckpointFile> files;
  std::error_code error;
  if (!fs::exists(folder, error)) return files;
  fs::directory_iterator entries(folder, error);
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  const std::optional<RunBranch> branch = read_branch(folder + "/..");
  const bool leaving = branch && branch->unfinished;
  for (const fs::directory_entry& entry : entries) {
    const auto step = step_of_checkpoint(entry.path().filename().string());
    if (!step || !entry.is_regular_file(error)) continue;
    if (leaving && *step > branch->unfinished->after_step) continue;
    const auto bytes = entry.file_size(error);
    files.push_back({*step, entry.path().string(), error ? 0 : static_cast<std::int64_t>(bytes)});
  }
  std::sort(files.begin(), files.end(), [](const CheckpointFile& a, const CheckpointFile& b) {
    return a.step != b.step ? a.step < b.step : a.path < b.path;
  });
  return files;
}

// A name is step-00001000.h5.7.partial, where 7 is the generation. The file of a later holder
// stays, even if we do not know of that holder yet.
void remove_unfinished_checkpoints(const std::string& folder, std::int64_t generation) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path path = entries->path();
    if (path.extension() != ".partial" || !entries->is_regular_file()) continue;
    const std::string number = path.stem().extension().string();
    std::int64_t its = 0;
    std::from_chars(number.data() + std::min<std::size_t>(1, number.size()),
                    number.data() + number.size(), its);
    if (its <= generation) fs::remove(path, error);
  }
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
}

LatestCheckpoint open_latest_checkpoint(Communicator& comm, const std::string& folder) {
  // Only rank 0 looks, because another node may see the folder as it was a moment ago.
  std::string names;
  run_together(comm, [&] {
    if (comm.rank() != 0) return;
    for (const CheckpointFile& file : list_checkpoints(folder)) names.insert(0, file.path + '\n');
  });
  names = comm.broadcast_text(std::move(names));
  LatestCheckpoint latest;
  for (std::size_t at = 0; at < names.size(); at = names.find('\n', at) + 1) {
    const std::string path = names.substr(at, names.find('\n', at) - at);
    try {
      latest.checkpoint = Checkpoint::open(comm, path);
      break;
    } catch (const CheckpointError& error) {
      latest.refused.emplace_back(error.what());
    }
  }
  return latest;
}

}  // namespace trireme
