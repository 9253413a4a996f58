// Where a run starts from: what run.resume means for this start, and what happens to files in the
// run folder that are not ancestors of that point.
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_branch.h"
#include "trireme/io/run_folder.h"

namespace trireme {

class StartingPoint {
 public:
  // What a start will find.
  struct Foreseen {
    bool anew = false;                     // run.resume never, which no earlier start has followed
    std::optional<Checkpoint> checkpoint;  // to continue from; empty: none, or none that is good
    bool promise_broken = false;           // RunBranch::promise_broken of the branch that goes on
  };
  // Collective over the world. Tells what the files tell before the folder is held. Changes nothing
  // and says nothing. Throws RunFolderError.
  static Foreseen foresee(Communicator& world, const std::string& folder,
                          const std::string& resume);

  // Collective over the world. `resume` is run.resume. Completes the moves that an interrupted
  // start had begun. Throws RunFolderError.
  StartingPoint(Communicator& world, const RunFolder& folder, const std::string& resume);

  // Collective over the world. Returns the checkpoint to continue from, if any. Rank 0 prints which
  // ones were skipped. Throws CheckpointError.
  std::optional<Checkpoint> open();

  // Collective over the world. Call it when the checkpoint has been read and nothing can refuse it
  // any more. Moves the files that are not its ancestors to superseded/, and records the branch.
  // Rank 0 prints what it moved. `promise_broken`: RunBranch::promise_broken of this start;
  // nothing where it trains no step, so that the record stays. Returns whether the run continues
  // the branch that the folder held. Throws RunFolderError.
  bool settle(const std::optional<Checkpoint>& checkpoint, std::optional<bool> promise_broken);

 private:
  std::string decide();  // on rank 0
  bool settle_folder(const std::optional<Checkpoint>& checkpoint,
                     std::optional<bool> promise_broken);
  void move(RunBranch branch, const std::string& why);
  void warn_of_old_mixture() const;
  bool takes_flag() const { return path_ || never_; }

  Communicator& world_;
  const RunFolder& folder_;
  const std::string resume_;
  // What to open. If neither is set: the newest good checkpoint of the branch, or else its origin.
  bool never_ = false;
  std::optional<std::string> path_;
  std::string origin_;                 // the branch's origin, as a path to open; or empty
  std::optional<RunBranch> recorded_;  // on rank 0
};

}  // namespace trireme
