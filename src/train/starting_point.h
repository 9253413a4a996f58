// Where a start of a run begins: what run.resume means for it, and what becomes of files in the run
// folder that are no ancestors of that point.
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
  // Collective over the world. `resume` is run.resume. Completes what an interrupted start was
  // about to move. Throws RunFolderError.
  StartingPoint(Communicator& world, const RunFolder& folder, const std::string& resume);

  // Collective over the world. The checkpoint to go on from, if any; rank 0 says which were passed
  // over. Throws CheckpointError.
  std::optional<Checkpoint> open();

  // Collective over the world. To be called when the checkpoint was read and nothing can refuse it
  // any more: moves what is no ancestor of it, and records the branch. Rank 0 says what it moved.
  // Returns whether the run goes on with the branch that the folder held. Throws RunFolderError.
  bool settle(const std::optional<Checkpoint>& checkpoint);

 private:
  std::string decide();  // on rank 0
  bool settle_folder(const std::optional<Checkpoint>& checkpoint);
  void move(RunBranch branch, const std::string& why);
  void warn_of_old_mixture() const;
  bool takes_flag() const { return path_ || never_; }

  Communicator& world_;
  const RunFolder& folder_;
  const std::string resume_;
  // What to open; neither: the newest good checkpoint of the branch, or else its origin.
  bool never_ = false;
  std::optional<std::string> path_;
  std::string origin_;                 // of the branch, where its checkpoint can be opened
  std::optional<RunBranch> recorded_;  // on rank 0
};

}  // namespace trireme
