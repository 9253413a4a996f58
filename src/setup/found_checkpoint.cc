#include "trireme/setup/found_checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/config/config.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr ExitStatus kOfWeights = ExitStatus::kCheckpoint;

// Returns the folder that holds the checkpoints, or nothing if `where` is not a folder.
std::string checkpoint_folder(const std::string& where) {
  if (!look_ahead(where, kOfWeights).is_folder()) return "";
  const std::string inside = (fs::path(where) / "checkpoints").string();
  return look_at(inside, kOfWeights).is_folder() ? inside : where;
}

// Why a folder has no checkpoint.
std::string words_on_none(const std::string& folder) {
  if (const auto files = names_in(folder + "/outer", kOfWeights)) {
    std::string newest;
    for (const std::string& file : *files) {
      if (file.starts_with("state-") && file.ends_with(".h5")) newest = std::max(newest, file);
    }
    return fmt::format(
        "no checkpoint is there: several jobs carry the run in this folder, whose last state "
        "becomes one; until then name a state in its folder outer{}",
        newest.empty() ? "" : ", as " + shown(folder + "/outer/" + newest));
  }
  const std::vector<std::string> names =
      names_in(folder, kOfWeights).value_or(std::vector<std::string>());
  const auto is_foreign = [](const std::string& name) { return name.ends_with(".safetensors"); };
  const auto foreign = std::ranges::find_if(names, is_foreign);
  return foreign == names.end()
             ? "no checkpoint is there; a run writes its first after checkpoint.every steps"
             : fmt::format("no checkpoint is there, but {}: trireme import --from {} makes one",
                           shown(*foreign), shown(folder));
}

}  // namespace

Checkpoint open_checkpoint_or_run(Communicator& comm, const std::string& where) {
  // Only one rank looks, so that all take the same path.
  const std::string kind = comm.read_once([&] {
    const FileFacts facts = look_ahead(where, kOfWeights);
    return !facts.is_there() ? "none" : facts.is_folder() ? "folder" : "file";
  });
  if (kind == "none") {
    throw CheckpointError(fmt::format(
        "{}: there is no such file or folder; name a checkpoint (step-00001000.h5) or a run folder",
        where));
  }
  if (kind == "file") return Checkpoint::open(comm, where);
  const std::string folder = comm.read_once([&] { return checkpoint_folder(where); });
  LatestCheckpoint latest = open_latest_checkpoint(comm, folder);
  if (!latest.checkpoint) {
    const std::string why = comm.read_once([&] { return words_on_none(folder); });
    throw CheckpointError(latest.refused.empty()
                              ? fmt::format("{}: {}", folder, why)
                              : fmt::format("{}: no good checkpoint is there; the newest is {}",
                                            folder, latest.refused.front()));
  }
  if (comm.rank() == 0) {
    for (const std::string& reason : latest.refused) report_line("damaged, not used: " + reason);
  }
  return *latest.checkpoint;
}

std::string foreign_format(const CheckpointInfo& info) {
  for (const char* attribute : {kImportedAttribute, kFormatAttribute}) {
    const auto found = info.extra.find(attribute);
    if (found != info.extra.end()) return found->second;
  }
  return "";
}

std::int64_t foreign_context(const CheckpointInfo& info) {
  std::int64_t context = 0;
  const auto take = [&](const auto& from, const char* name) {
    const auto found = from.find(name);
    if (found == from.end()) return false;
    if (!read_value(found->second, context, between(1, limits::kTokens)).empty()) context = 0;
    return true;
  };
  if (take(info.extra, kContextAttribute) || !info.extra.contains(kImportedAttribute)) {
    return context;
  }
  try {
    take(config_from_ini(info.config, "imported weights").model.keys, "context");
  } catch (const ConfigError&) {  // of another version, which knew other keys
  }
  return context;
}

std::int64_t largest_checkpoint_bytes(Communicator& comm, const std::string& where) {
  const auto largest = [&]() -> std::int64_t {
    std::int64_t bytes = 0;
    try {
      const FileFacts facts = look_ahead(where, kOfWeights);
      if (!facts.is_folder()) return facts.bytes;
      for (const CheckpointFile& file : list_checkpoints(checkpoint_folder(where))) {
        bytes = std::max(bytes, file.bytes);
      }
    } catch (const Error&) {  // whoever opens it reports that
    }
    return bytes;
  };
  return comm.all_reduce_host(comm.rank() == 0 ? largest() : std::int64_t{0}, ReduceOp::kMax);
}

}  // namespace trireme
