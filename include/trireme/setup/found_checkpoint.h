// The checkpoint that a command means: a file, or the newest good one of a run folder.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/io/checkpoint.h"

namespace trireme {

// Collective over comm. `where` is a checkpoint, a folder of checkpoints, or a run folder. In a
// folder it opens the newest good checkpoint, and rank 0 reports the newer ones that are damaged.
// Throws CheckpointError, the same on all ranks.
Checkpoint open_checkpoint_or_run(Communicator& comm, const std::string& where);

// Collective over comm. Returns the size of the largest checkpoint that open_checkpoint_or_run may
// open there; 0 where there is none.
std::int64_t largest_checkpoint_bytes(Communicator& comm, const std::string& where);

// The attribute of checkpoints whose weights were imported: models::ForeignModel::format.
inline constexpr const char* kImportedAttribute = "imported";
// The same of what a run has made of such weights: an export has their names again.
inline constexpr const char* kFormatAttribute = "foreign_format";

// How other programs had the weights that became those of this checkpoint; empty: none had them.
std::string foreign_format(const CheckpointInfo& info);

// The attribute with the longest text that weights from elsewhere are for, where a run trains on
// shorter ones: an export is for such texts again.
inline constexpr const char* kContextAttribute = "foreign_context";

// The longest text that weights which came from elsewhere were for there, in tokens; 0: they did
// not, or nothing says it.
std::int64_t foreign_context(const CheckpointInfo& info);

}  // namespace trireme
