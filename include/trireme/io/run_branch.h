// A run has one history: each checkpoint of a run folder is an ancestor of the later ones. A start
// that does not continue the newest checkpoint begins a branch. Then everything that is not an
// ancestor of its starting point moves to superseded/<generation>/ (io/RUN_FOLDER.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// Which job a start of the program belongs to.
struct JobStart {
  std::string name;           // TRIREME_JOB; empty: none
  std::string slurm_job;      // SLURM_JOB_ID; empty: none
  std::int64_t restarts = 0;  // SLURM_RESTART_COUNT: how often Slurm has restarted the job
};
JobStart job_of_this_start();

// What branch.json records.
struct RunBranch {
  std::int64_t generation = 0;  // of the holder that began the branch
  // The checkpoint from outside this history that the branch began with. The path is relative to
  // the run folder if the checkpoint is inside it (in superseded/). Empty: none.
  std::string origin;
  // The jobs whose run.resume (never, or a path) this branch has followed.
  std::vector<JobStart> jobs;
  // The last start had promised run.same_bits and no longer could. Its checkpoints say so too; this
  // is for a start that finds none.
  bool promise_broken = false;
  // A move to superseded/<generation>/ that is not finished. It moves all files that are not
  // ancestors of a start after `after_step` steps (-1: no file is an ancestor, 0: at most the
  // checkpoint of step 0 is, which holds imported weights; versions without such checkpoints
  // recorded 0 for both).
  struct Move {
    std::int64_t generation = 0;
    std::int64_t after_step = 0;
  };
  std::optional<Move> unfinished;

  // Whether this is a later start of a job whose run.resume the branch has followed already: a
  // start with the same TRIREME_JOB, or a restart of the same Slurm job.
  bool follows(const JobStart& start) const;
};

// Returns the branch of a run folder, or nothing if none is recorded. Throws RunFolderError.
std::optional<RunBranch> read_branch(const std::string& folder);
// Replaces the record and syncs it to disk. Throws RunFolderError.
void write_branch(const std::string& folder, const RunBranch& branch);

// What happens to a file that is not an ancestor, or of which only a part is.
struct SupersededFile {
  std::string name;     // relative to the run folder
  bool copied = false;  // superseded/ gets a copy, because a part of the file stays or the run
                        // replaces it; false: the file is renamed
};

// Returns those of these files that are not ancestors of a start after `after_step` steps (as
// in RunBranch::Move). `names` are relative to the run folder. Files with steps before and after
// that point are copied; whoever appends to them cuts them back.
std::vector<SupersededFile> superseded_by(const std::vector<std::string>& names,
                                          std::int64_t after_step);

// Returns the files of a run folder that belong to a branch, sorted and relative to the folder.
// Empty files are left out, except for checkpoints. Throws RunFolderError.
std::vector<std::string> files_of_branch(const std::string& folder);

// Carries out the move in branch.unfinished, or completes it if an earlier attempt was interrupted.
// First syncs the record to disk, then renames or copies each file, then calls `told` with a text
// that says what is in superseded/ now, and at last records that the move is done. Calls
// `before_each` before each change of the folder; it throws to give up. Throws RunFolderError.
void move_superseded(const std::string& folder, RunBranch branch,
                     const std::function<void()>& before_each,
                     const std::function<void(const std::string& what)>& told);

// A folder in superseded/ and what it holds.
struct SupersededBranch {
  std::int64_t generation = 0;
  std::string path;
  std::int64_t checkpoints = 0;
  std::int64_t bytes = 0;  // of all files
};
std::vector<SupersededBranch> list_superseded(const std::string& folder);

}  // namespace trireme
