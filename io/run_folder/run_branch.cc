#include "trireme/io/run_branch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/whole_file.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string record_path(const std::string& folder) {
  return folder + "/branch.json";
}

std::string folder_of_superseded(const std::string& folder, std::int64_t generation) {
  return fmt::format("{}/superseded/{}", folder, generation);
}

constexpr ExitStatus kOfBranch = ExitStatus::kRunFolder;
// The key of RunBranch::promise_broken in branch.json.
constexpr const char* kPromiseBroken = "bits_parted";

// Returns no names where the folder is absent.
std::vector<std::string> names_if_there(const std::string& folder) {
  return names_in(folder, kOfBranch).value_or(std::vector<std::string>());
}

// "3 checkpoints (steps 20 to 60), with metrics, moved to run/superseded/7"
std::string what_lies_in(const std::string& superseded) {
  const std::vector<CheckpointFile> files = list_checkpoints(superseded + "/checkpoints");
  const std::string checkpoints = files.empty() ? "no checkpoint"
                                  : files.size() == 1
                                      ? fmt::format("1 checkpoint (step {})", files.front().step)
                                      : fmt::format("{} checkpoints (steps {} to {})", files.size(),
                                                    files.front().step, files.back().step);
  const bool metrics = look_at(superseded + "/metrics.jsonl", kOfBranch).is_there();
  return fmt::format("{}{} moved to {}", checkpoints, metrics ? ", with metrics," : "", superseded);
}

// The copy replaces what an interrupted attempt left, and reaches the disk.
void copy_bytes(const std::string& from, const std::string& to) {
  FileReader source(from, kOfBranch);
  PosixFile copy = make_file_anew(to);
  std::vector<char> block(std::size_t{1} << 20);
  std::int64_t at = 0;
  while (const std::size_t got = source.read(block.data(), block.size())) {
    copy.write(at, block.data(), got);
    at += static_cast<std::int64_t>(got);
  }
  copy.sync();
}

// Performs one move into superseded/ step by step. Any step may have been done already.
class Mover {
 public:
  Mover(std::string folder, std::string target, const std::function<void()>& before_each)
      : folder_(std::move(folder)), target_(std::move(target)), before_each_(before_each) {}

  void make_folder(const std::string& path) {
    if (look_at(path, kOfBranch).is_folder()) return;
    before_each_();
    make_folders(path, kOfBranch);
    sync_folder(folder_above(path));
  }

  void take(const SupersededFile& file) {
    const std::string from = folder_ + "/" + file.name, to = target_ + "/" + file.name;
    make_folder(folder_above(to));
    if (file.copied) {
      copy(from, to);
    } else {
      move(from, to);
    }
  }

 private:
  void copy(const std::string& from, const std::string& to) {
    if (look_at(to, kOfBranch).is_there()) return;
    before_each_();
    const std::string partial = to + ".partial";
    copy_bytes(from, partial);
    before_each_();
    rename_file(partial, to, kOfBranch);
    sync_folder(folder_above(to));
  }

  void move(const std::string& from, const std::string& to) {
    if (look_at(to, kOfBranch).is_there()) {
      throw RunFolderError(
          fmt::format("{} is to make room for a new branch, but {} is there already; remove the "
                      "one that you do not need",
                      from, to));
    }
    before_each_();
    rename_file(from, to, kOfBranch);
    sync_folder(folder_above(to));
    sync_folder(folder_above(from));
  }

  const std::string folder_, target_;
  const std::function<void()>& before_each_;
};

}  // namespace

JobStart job_of_this_start() {
  std::string name = environment("TRIREME_JOB");
  const std::string job = environment("SLURM_JOB_ID"), of = environment("TRIREME_JOB_OF");
  // A job that was submitted in one of a template has the name that this one's script gave itself.
  if (!of.empty() && of != job && name == environment("TRIREME_JOB_SET")) name.clear();
  return {name, job, std::strtoll(environment("SLURM_RESTART_COUNT").c_str(), nullptr, 10)};
}

bool RunBranch::follows(const JobStart& start) const {
  return std::any_of(jobs.begin(), jobs.end(), [&](const JobStart& job) {
    const bool same_name = !start.name.empty() && start.name == job.name;
    const bool same_job = !start.slurm_job.empty() && start.slurm_job == job.slurm_job;
    return same_name || (same_job && start.restarts > 0);
  });
}

std::optional<RunBranch> read_branch(const std::string& folder) {
  const std::string path = record_path(folder);
  if (!look_ahead(path, kOfBranch).is_there()) return {};  // nor may the folder be there yet
  const auto words = read_if_there(path, kOfBranch);
  if (!words) return {};
  try {
    const Json text = Json::parse(*words);
    RunBranch branch;
    branch.generation = text.at("generation").integer();
    branch.origin = text.at("origin").text();
    for (const Json& job : text.at("jobs").items()) {
      branch.jobs.push_back({job.at("name").text(), job.at("slurm_job").text(), 0});
    }
    if (const Json* broken = text.find(kPromiseBroken)) branch.promise_broken = broken->boolean();
    if (const Json* move = text.find("unfinished")) {
      branch.unfinished = {move->at("generation").integer(), move->at("after_step").integer()};
    }
    return branch;
  } catch (const JsonError&) {
    throw RunFolderError(path +
                         ": not a record of a branch; remove it, and the folder is one branch");
  }
}

void write_branch(const std::string& folder, const RunBranch& branch) {
  Json jobs = Json::array();
  for (const JobStart& job : branch.jobs) {
    jobs.push_back(Json::object({{"name", job.name}, {"slurm_job", job.slurm_job}}));
  }
  Json text = Json::object(
      {{"generation", branch.generation}, {"origin", branch.origin}, {"jobs", std::move(jobs)}});
  if (branch.promise_broken) text[kPromiseBroken] = true;
  if (branch.unfinished) {
    text["unfinished"] = Json::object({{"generation", branch.unfinished->generation},
                                       {"after_step", branch.unfinished->after_step}});
  }
  write_whole_file(record_path(folder), text.dump(2) + "\n");
}

std::vector<SupersededFile> superseded_by(const std::vector<std::string>& names,
                                          std::int64_t after_step) {
  std::vector<SupersededFile> files;
  for (const std::string& name : names) {
    const fs::path path(name);
    const std::string folder = path.parent_path().string();
    if (folder == "checkpoints") {
      const auto step = step_of_checkpoint(path.filename().string());
      if (step && *step > after_step) files.push_back({name});
    } else if (name == "metrics.jsonl" || folder == "tensorboard") {
      files.push_back({name, after_step > 0});
    } else if (name == "report.html" || name == "ranks.json" || name == "communication.json" ||
               name == "fabric.json" || name == "nccl-table.txt" || name == "trace.json") {
      files.push_back({name});  // describes the whole branch, and will be written anew
    } else if (name == "config.ini") {
      files.push_back({name, true});
    }
  }
  return files;
}

std::vector<std::string> files_of_branch(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string below : {"", "checkpoints/", "tensorboard/"}) {
    for (const std::string& entry : names_if_there(folder + "/" + below)) {
      const std::string name = below + entry;
      if (name.ends_with(".partial")) continue;
      const FileFacts facts = look_at(folder + "/" + name, kOfBranch);
      if (!facts.is_file()) continue;
      if (facts.bytes > 0 || name.starts_with("checkpoints/")) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void move_superseded(const std::string& folder, RunBranch branch,
                     const std::function<void()>& before_each,
                     const std::function<void(const std::string& what)>& told) {
  TRIREME_CHECK(branch.unfinished, "nothing is to be moved");
  const RunBranch::Move move = *branch.unfinished;
  const std::string target = folder_of_superseded(folder, move.generation);
  before_each();
  write_branch(folder, branch);
  Mover mover(folder, target, before_each);
  mover.make_folder(folder + "/superseded");
  mover.make_folder(target);
  for (const SupersededFile& file : superseded_by(files_of_branch(folder), move.after_step)) {
    mover.take(file);
  }
  told(what_lies_in(target));
  branch.unfinished.reset();
  before_each();
  write_branch(folder, branch);
}

namespace {

std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const std::string& name : names_if_there(folder)) {
    const std::string path = folder + "/" + name;
    const FileFacts facts = look_at(path, kOfBranch);
    bytes += facts.is_folder() ? bytes_below(path) : facts.is_file() ? facts.bytes : 0;
  }
  return bytes;
}

}  // namespace

std::vector<SupersededBranch> list_superseded(const std::string& folder) {
  std::vector<SupersededBranch> branches;
  const std::string superseded = folder + "/superseded";
  for (const std::string& name : names_if_there(superseded)) {
    SupersededBranch branch{.path = superseded + "/" + name};
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, branch.generation).ptr != end ||
        !look_at(branch.path, kOfBranch).is_folder()) {
      continue;
    }
    branch.checkpoints = std::ssize(list_checkpoints(branch.path + "/checkpoints"));
    branch.bytes = bytes_below(branch.path);
    branches.push_back(std::move(branch));
  }
  std::sort(branches.begin(), branches.end(),
            [](const auto& a, const auto& b) { return a.generation < b.generation; });
  return branches;
}

}  // namespace trireme
