// A run has one history. All checkpoints of a run folder lie on one line: each is an ancestor of
// the later ones. A start that does not continue the newest of them begins a branch, and whatever
// is no ancestor of its starting point moves to superseded/<generation>/ (io/README.md).
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
  std::int64_t restarts = 0;  // SLURM_RESTART_COUNT: how often Slurm has started the job anew
};
JobStart job_of_this_start();

// What branch.json records.
struct RunBranch {
  std::int64_t generation = 0;  // of the holder that began the branch
  // The checkpoint from outside of this history that it began with, relative to the run folder
  // where it lies in it (in superseded/); empty: none.
  std::string origin;
  // The jobs whose run.resume (never, or a path) this branch follows.
  std::vector<JobStart> jobs;
  // Files that are on their way to superseded/<generation>/: all that is no ancestor of a start
  // after `after_step` steps (0: nothing is).
  struct Move {
    std::int64_t generation = 0;
    std::int64_t after_step = 0;
  };
  std::optional<Move> unfinished;

  // Whether this is a later start of a job whose run.resume the branch follows already: the same
  // TRIREME_JOB, or the same job of Slurm started anew.
  bool follows(const JobStart& start) const;
};

// The branch of a run folder; nothing where none is recorded. Throws RunFolderError.
std::optional<RunBranch> read_branch(const std::string& folder);
// Replaces the record, synced. Throws RunFolderError.
void write_branch(const std::string& folder, const RunBranch& branch);

// What becomes of a file that is no ancestor, or not in all of its parts.
struct SupersededFile {
  std::string name;     // relative to the run folder
  bool copied = false;  // a part of it stays, or it is replaced: superseded/ gets a copy
};

// Of these files of a run folder, named relative to it, those that are no ancestors of a start
// after `after_step` steps (0: nothing is). Files that tell of steps on both sides are copied; who
// appends to them cuts them back.
std::vector<SupersededFile> superseded_by(const std::vector<std::string>& names,
                                          std::int64_t after_step);

// The files of a run folder that belong to a branch, named relative to it, sorted; without files
// that are empty, but with every checkpoint. Throws RunFolderError.
std::vector<std::string> files_of_branch(const std::string& folder);

// Carries out branch.unfinished, from wherever an earlier attempt was interrupted: the record is
// synced first, then each file is renamed or copied, and `told` is called with what lies in
// superseded/ now before the record says that all is done. `before_each` is called before each
// change of the folder and throws to give up. Throws RunFolderError.
void move_superseded(const std::string& folder, RunBranch branch,
                     const std::function<void()>& before_each,
                     const std::function<void(const std::string& what)>& told);

// Folders below superseded/ and what they hold.
struct SupersededBranch {
  std::int64_t generation = 0;
  std::string path;
  std::int64_t checkpoints = 0;
  std::int64_t bytes = 0;  // of all files
};
std::vector<SupersededBranch> list_superseded(const std::string& folder);

}  // namespace trireme
