// Checkpoints: one HDF5 file with whole tensors, whatever grid wrote it (format: io/README.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/io/tensor_slice.h"

namespace trireme {

struct CheckpointInfo {
  std::int64_t format_version = 1;
  std::int64_t step = 0;
  std::int64_t samples = 0;  // consumed so far: the position in the data
  std::uint64_t seed = 0;
  std::string config;                        // the resolved configuration, as an INI text
  std::map<std::string, std::string> extra;  // further attributes of the file
};

struct CheckpointOptions {
  int keep = 0;  // afterwards only the newest `keep` checkpoints stay; 0: all
  // Of the run folder's holder (run_folder.h). It is part of the unfinished file's name, so that
  // ranks that outlived an earlier start of the run never meet the files of a later one.
  std::int64_t generation = 0;
  // Called on rank 0 before the file is begun and right before it gets its name; throws to give it
  // up.
  std::function<void()> check_still_ours;
};

// Collective over comm. Each rank gives the slices that it owns: every element of every tensor is
// owned by exactly one rank. Writes FOLDER/step-00001000.h5, under that name only once it is
// complete, on the disk and verified; older checkpoints stay untouched until then. Returns the
// path. The same on all ranks: RunFolderError where the folder is unwritable or full,
// CheckpointError where what was written does not read back, InternalError where the slices do not
// cover each tensor exactly once.
std::string write_checkpoint(Communicator& comm, FlightRecorder& recorder,
                             const std::string& folder, const CheckpointInfo& info,
                             std::span<const TensorSlice> owned,
                             const CheckpointOptions& options = {});

// One tensor of a checkpoint.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  std::int64_t offset = 0;  // of its first byte in the file
  std::uint64_t checksum = 0;

  std::int64_t bytes() const;
};

// What a checkpoint says about itself; the bytes of the tensors are not looked at.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;  // by name
  std::int64_t file_bytes = 0;

  const CheckpointTensor* find(const std::string& name) const;  // nullptr: there is none
};

// Checks everything but the tensors' own bytes. Throws CheckpointError.
CheckpointContents inspect_checkpoint(const std::string& path);

// Checks everything, by this process alone. Throws CheckpointError.
CheckpointContents verify_checkpoint(const std::string& path);

// How the ranks that read a checkpoint hang together: the world is `copies` replicas. Of one
// replica's ranks each wants what it will, together at least once every element that any rank
// wants; the ranks of `copies` want the same as one another, and are numbered alike in it.
struct ReadGroups {
  Communicator& world;
  Communicator& replica;           // the ranks of this rank's replica
  Communicator* copies = nullptr;  // those that want what this rank wants, one of each replica;
                                   // none: there is one replica
};

// A checkpoint of which every byte was checked, open for reading.
class Checkpoint {
 public:
  // Collective over comm: each rank checks an equal share of the bytes. Throws CheckpointError, the
  // same on all ranks, that says what is wrong.
  static Checkpoint open(Communicator& comm, const std::string& path);

  const std::string& path() const;
  const CheckpointInfo& info() const;
  const CheckpointContents& contents() const;

  // Collective over comm. Throws what read would throw for these slices, and reads nothing.
  void check(Communicator& comm, std::span<const TensorSlice> wanted) const;

  // Collective over comm. Fills the slices, any slices on any grid. Throws CheckpointError, the
  // same on all ranks, that names the first tensor that is missing or of another shape or type.
  // The world reads each byte of the file once, in long runs, and hands the elements around.
  void read(const ReadGroups& groups, std::span<const TensorSlice> wanted) const;
  // The same without copies: each rank of comm wants what it will.
  void read(Communicator& comm, std::span<const TensorSlice> wanted) const;

 private:
  struct Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

struct CheckpointFile {
  std::int64_t step = 0;
  std::string path;
  std::int64_t bytes = 0;
};

// The complete checkpoints of a folder, oldest first; none where there is no such folder. Of a
// run's folder those of its current branch: what an interrupted start was about to move to
// superseded/ (run_branch.h) is left out. Throws RunFolderError.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);

// The step in a file's name "step-00001000.h5"; nothing where it is no checkpoint's name.
std::optional<std::int64_t> step_of_checkpoint(std::string_view name);

// Removes the unfinished files that holders of the run folder up to `generation` left. Throws
// RunFolderError.
void remove_unfinished_checkpoints(const std::string& folder, std::int64_t generation);

// Path of the checkpoint of a step.
std::string checkpoint_path(const std::string& folder, std::int64_t step);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // none: no good one is there
  std::vector<std::string> refused;      // newer ones that are damaged, each with the reason
};

// Collective over comm. The newest checkpoint of the folder that is good.
LatestCheckpoint open_latest_checkpoint(Communicator& comm, const std::string& folder);

}  // namespace trireme
