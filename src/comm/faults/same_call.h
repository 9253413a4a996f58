// Whether all ranks were started as the same program with the same arguments.
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/runtime.h"

namespace trireme {

// Collective, blocking. Returns the same on all ranks: one line that names the first difference
// and the ranks that have it, nullopt if there is none. The order of flags does not count, and
// neither does --KEY=VALUE for --KEY VALUE. Where there is none it is one reduction of a few bytes,
// the same in all versions of the program.
std::optional<std::string> difference_between_ranks(Communicator& world, const ProgramCall& own);

}  // namespace trireme
