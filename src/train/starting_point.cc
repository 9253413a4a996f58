#include "train/starting_point.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/report/goodput.h"
#include "trireme/report/interruption.h"
#include "trireme/report/run_events.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Returns the origin as branch.json records it. A path inside the run folder is relative, so it
// stays valid if the whole folder is moved.
std::string origin_text(const std::string& checkpoint, const std::string& folder) {
  const fs::path path = resolved(checkpoint);
  const fs::path inside = path.lexically_relative(resolved(folder));
  const bool lies_inside = !inside.empty() && *inside.begin() != "..";
  return lies_inside ? inside.string() : path.string();
}

// Whether a checkpoint is one of the run's own, on the line of its history. A copy elsewhere in the
// folder, or a checkpoint in superseded/, is not.
bool is_ancestor(const Checkpoint& checkpoint, const std::string& checkpoints) {
  return same_file(checkpoint.path(), checkpoint_path(checkpoints, checkpoint.info().step),
                   ExitStatus::kRunFolder);
}

// Whether a start that continues nothing would have to move any file of a branch.
bool holds_a_branch(const std::vector<SupersededFile>& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const SupersededFile& file) { return !file.copied; });
}

// The number of steps after which a start stands that has nothing from the run's own history: not
// even the weights of step 0, which may have been imported.
constexpr std::int64_t kNothingInherited = -1;

constexpr std::string_view kAuto = "auto ";

// Returns what run.resume means for this start: "never", "path", or "auto " followed by the origin
// of the branch, as a path. What an earlier start of the same job has followed is not repeated.
std::string meaning_of(const std::string& resume, const std::optional<RunBranch>& recorded,
                       const std::string& folder) {
  const bool literal = resume != "auto";
  if (literal && !(recorded && recorded->follows(job_of_this_start()))) {
    return resume == "never" ? "never" : "path";
  }
  const std::string origin = recorded ? recorded->origin : "";
  return std::string(kAuto) + (origin.empty() ? "" : (fs::path(folder) / origin).string());
}

// A checkpoint that cannot be read now may well be good: no older one takes its place.
LatestCheckpoint open_latest(Communicator& world, const std::string& checkpoints) {
  try {
    return open_latest_checkpoint(world, checkpoints);
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("{}; start again when it can be read, or name the checkpoint to go on from "
                    "with --run.resume PATH",
                    error.what()),
        error.cause());
  }
}

}  // namespace

StartingPoint::StartingPoint(Communicator& world, const RunFolder& folder,
                             const std::string& resume)
    : world_(world), folder_(folder), resume_(resume) {
  const std::string origin = world_.read_once([&] { return decide(); });
  never_ = origin == "never";
  if (origin == "path") path_ = resume_;
  if (origin.starts_with(kAuto)) origin_ = origin.substr(kAuto.size());
}

StartingPoint::Foreseen StartingPoint::foresee(Communicator& world, const std::string& folder,
                                               const std::string& resume) {
  bool promise_broken = false;
  const std::string found = world.read_once([&] {
    const std::optional<RunBranch> recorded = read_branch(folder);
    promise_broken = recorded && recorded->promise_broken;
    return meaning_of(resume, recorded, folder);
  });
  if (found == "never") return {.anew = true, .checkpoint = {}};
  // A path begins a branch of its own.
  promise_broken = !world.broadcast_text(promise_broken && found != "path" ? "broken" : "").empty();
  try {
    if (found == "path") return {.checkpoint = Checkpoint::open(world, resume)};
    LatestCheckpoint latest = open_latest(world, folder + "/checkpoints");
    const std::string origin = found.substr(kAuto.size());
    if (latest.checkpoint || origin.empty()) {
      return {.checkpoint = std::move(latest.checkpoint), .promise_broken = promise_broken};
    }
    return {.checkpoint = Checkpoint::open(world, origin), .promise_broken = promise_broken};
  } catch (const CheckpointError& error) {
    if (error.unreadable()) throw;
    // It is damaged; open() reports it.
    return {.checkpoint = {}, .promise_broken = promise_broken};
  }
}

// Returns what meaning_of returns.
std::string StartingPoint::decide() {
  recorded_ = read_branch(folder_.path());
  if (recorded_ && recorded_->unfinished) {
    move(*recorded_, "what an interrupted start had begun is complete");
    recorded_ = read_branch(folder_.path());
  }
  std::string meaning = meaning_of(resume_, recorded_, folder_.path());
  if (!meaning.starts_with(kAuto)) return meaning;
  if (resume_ != "auto") {
    print_line(fmt::format(
        "an earlier start of this job followed run.resume {} already: its branch goes on",
        resume_));
  }
  if (!recorded_) warn_of_old_mixture();
  return meaning;
}

// Versions without branch.json left the checkpoints of several branches in one folder.
void StartingPoint::warn_of_old_mixture() const {
  if (!look_at(folder_.file("metrics.jsonl"), ExitStatus::kRunFolder).is_there()) return;
  const auto last = read_interruption(folder_.path());
  const std::int64_t step = last ? last->last_step : 0;
  const std::vector<CheckpointFile> files = list_checkpoints(folder_.checkpoints());
  if (files.empty() || files.back().step <= step) return;
  report_line(
      fmt::format("{} is beyond the steps of metrics.jsonl, which end with {}: an earlier version "
                  "may have left it from another branch; --run.resume PATH names another one",
                  files.back().path, step));
}

std::optional<Checkpoint> StartingPoint::open() {
  if (never_) return {};
  if (path_) return Checkpoint::open(world_, *path_);
  LatestCheckpoint latest = open_latest(world_, folder_.checkpoints());
  const bool from_origin = !latest.checkpoint && !origin_.empty();
  if (world_.rank() == 0) {
    const std::string instead = latest.checkpoint ? "the one before is used"
                                : from_origin     ? "the run goes on from where it began"
                                                  : "the run begins anew";
    for (const std::string& refused : latest.refused) report_line(refused + "; " + instead);
  }
  if (!from_origin) return std::move(latest.checkpoint);
  try {
    return Checkpoint::open(world_, origin_);
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("{}: the run began with this checkpoint and has no good one of its own; give "
                    "it back, or begin anew with --run.resume never",
                    error.what()));
  }
}

bool StartingPoint::settle(const std::optional<Checkpoint>& checkpoint,
                           std::optional<bool> promise_broken) {
  return !world_
              .read_once(
                  [&] { return settle_folder(checkpoint, promise_broken) ? "continues" : ""; })
              .empty();
}

bool StartingPoint::settle_folder(const std::optional<Checkpoint>& checkpoint,
                                  std::optional<bool> promise_broken) {
  const bool inside = checkpoint && is_ancestor(*checkpoint, folder_.checkpoints());
  const std::int64_t after = inside ? checkpoint->info().step : kNothingInherited;
  const std::vector<CheckpointFile> files = list_checkpoints(folder_.checkpoints());
  const bool beyond = !files.empty() && files.back().step > after;
  const bool continues = !takes_flag() || (inside && !beyond);

  RunBranch branch;
  if (continues && recorded_) {
    branch = *recorded_;
  } else {
    branch.generation = folder_.generation();
    if (checkpoint && !inside) branch.origin = origin_text(checkpoint->path(), folder_.path());
  }
  const bool is_news = promise_broken && branch.promise_broken != *promise_broken;
  if (promise_broken) branch.promise_broken = *promise_broken;
  const JobStart job = job_of_this_start();
  const bool in_job = !job.name.empty() || !job.slurm_job.empty();
  if (takes_flag() && in_job) branch.jobs.push_back(job);
  const bool moves =
      beyond || (!continues && !inside &&
                 holds_a_branch(superseded_by(files_of_branch(folder_.path()), after)));
  if (moves) {
    branch.unfinished = {folder_.generation(), after};
    move(branch,
         continues ? fmt::format("the run goes on after step {}", std::max<std::int64_t>(after, 0))
         : inside  ? fmt::format("a new branch begins after step {}", after)
         : !checkpoint ? "a new branch begins at step 0"
                       : "a new branch begins with " + checkpoint->path());
  } else if (!recorded_ || takes_flag() || is_news) {
    folder_.check_still_ours();
    write_branch(folder_.path(), branch);
  }
  return continues;
}

void StartingPoint::move(RunBranch branch, const std::string& why) {
  const std::int64_t step = std::max<std::int64_t>(branch.unfinished->after_step, 0);
  if (const auto discarded = discarded_after(folder_.path(), step)) {
    EventLog(folder_.file("events.jsonl")).write(*discarded);
  }
  move_superseded(
      folder_.path(), std::move(branch), [&] { folder_.check_still_ours(); },
      [&](const std::string& what) {
        print_line(fmt::format("{}: {}", why, what));
        EventLog(folder_.file("events.jsonl")).write(step, "branch", 0.0, why + ": " + what);
      });
}

}  // namespace trireme
