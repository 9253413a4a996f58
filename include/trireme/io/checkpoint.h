// Checkpoints. Each is one HDF5 file that holds whole (unsharded) tensors, whatever grid wrote it
// (format: io/CHECKPOINTS.md).
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

// Files that a checkpoint keeps besides its tensors, by their names: the datasets /tokenizer/NAME.
using CheckpointTexts = std::map<std::string, std::string>;

struct CheckpointOptions {
  int keep = 0;  // after writing, only the newest `keep` checkpoints stay; 0: all of them
  std::optional<std::int64_t> spared = {};  // a step whose checkpoint stays all the same
  // The generation of the run folder's holder (run_folder.h). It is part of the unfinished file's
  // name, so ranks that outlived an earlier start of the run never touch the files of a later one.
  std::int64_t generation = 0;
  const CheckpointTexts* texts = nullptr;  // those of rank 0 count
  // Called on rank 0 before the file is begun and right before it gets its final name. It throws
  // to give the checkpoint up.
  std::function<void()> check_still_ours;
};

// Collective over comm. Each rank passes the slices that it owns; exactly one rank owns each
// element of every tensor. Writes FOLDER/step-00001000.h5. The file gets that name only once it is
// complete, synced to disk and verified; older checkpoints stay untouched until then. Returns the
// path. Throws the same error on all ranks: RunFolderError if the folder is unwritable or full,
// CheckpointError if the file does not read back as written, InternalError if the slices do not
// cover each tensor exactly once.
std::string write_checkpoint(Communicator& comm, FlightRecorder& recorder,
                             const std::string& folder, const CheckpointInfo& info,
                             std::span<const TensorSlice> owned,
                             const CheckpointOptions& options = {});

// Collective over comm. The same at a path of its own, which nobody else writes: the file has that
// name when it is complete, synced and verified, and no other file is removed. Of the options keep
// and spared do not count.
void write_checkpoint_to(Communicator& comm, FlightRecorder& recorder, const std::string& path,
                         const CheckpointInfo& info, std::span<const TensorSlice> owned,
                         const CheckpointOptions& options = {});

// One tensor of a checkpoint.
struct CheckpointTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  std::int64_t offset = 0;  // of the tensor's first byte in the file
  std::uint64_t checksum = 0;

  std::int64_t bytes() const;
};

// What a checkpoint's headers say, without the bytes of the tensors.
struct CheckpointContents {
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;  // sorted by name
  std::int64_t file_bytes = 0;

  const CheckpointTensor* find(const std::string& name) const;  // nullptr if there is none
};

// Reads the headers and checks everything except the tensors' own bytes. Throws CheckpointError.
CheckpointContents inspect_checkpoint(const std::string& path);

// Checks everything, on this process alone. Throws CheckpointError.
CheckpointContents verify_checkpoint(const std::string& path);

// Returns what CheckpointOptions::texts were, on this process alone; nothing where there were none.
// The closing record covers them, so a checkpoint that is open has them as they were. Throws
// CheckpointError.
CheckpointTexts read_checkpoint_texts(const std::string& path);

// How the ranks that read a checkpoint are grouped. The world consists of replicas. Each rank of a
// replica may want any slices; together they want every element that any rank of the world wants.
// The ranks of `copies`, one of each replica, want the same slices as one another and have the same
// rank in their replicas. A rank's number in `copies` is the number of its replica.
struct ReadGroups {
  Communicator& world;
  Communicator& replica;           // the ranks of this rank's replica
  Communicator* copies = nullptr;  // the ranks that want what this rank wants, one of each
                                   // replica; nullptr: there is only one replica
};

// A checkpoint that is open for reading. Every byte of it was checked.
class Checkpoint {
 public:
  // Collective over comm. Each rank checks an equal share of the bytes. Throws CheckpointError, the
  // same on all ranks, which says what is wrong.
  static Checkpoint open(Communicator& comm, const std::string& path);

  const std::string& path() const;
  const CheckpointInfo& info() const;
  const CheckpointContents& contents() const;

  // The same checkpoint, in which `name` says what each tensor is called; empty: it is left out. Of
  // several that have one name the last in the order of the file counts.
  Checkpoint renamed(const std::function<std::string(const std::string&)>& name) const;

  // Collective over comm. Throws what read would throw for these slices, but reads nothing.
  void check(Communicator& comm, std::span<const TensorSlice> wanted) const;

  // Collective over groups.world. Fills the slices, which may be any slices on any grid. Throws
  // CheckpointError, the same on all ranks, which names the first tensor that is missing or has
  // another shape or type. The world reads each byte of the file once, in long runs, and sends the
  // elements to the ranks that want them.
  void read(const ReadGroups& groups, std::span<const TensorSlice> wanted) const;
  // Collective over comm. The same with one replica: each rank of comm may want any slices.
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

// Returns the complete checkpoints of a folder, oldest first; none if there is no such folder. In
// the folder of a run, only those of its current branch: files that an interrupted start was about
// to move to superseded/ (run_branch.h) are left out. Throws RunFolderError.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);

// Returns the step in a file's name ("step-00001000.h5"), or nothing if it is not the name of a
// checkpoint.
std::optional<std::int64_t> step_of_checkpoint(std::string_view name);

// Removes the unfinished files that holders of the run folder left, up to and including
// `generation`. Throws RunFolderError.
void remove_unfinished_checkpoints(const std::string& folder, std::int64_t generation);

// Path of the checkpoint of a step.
std::string checkpoint_path(const std::string& folder, std::int64_t step);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // empty: there is no good one
  std::vector<std::string> refused;      // newer checkpoints that are damaged, with the reasons
};

// Collective over comm. Opens the newest good checkpoint of the folder.
LatestCheckpoint open_latest_checkpoint(Communicator& comm, const std::string& folder);

}  // namespace trireme
