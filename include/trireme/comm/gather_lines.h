// Gathers short texts of all ranks.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

// Collective over comm, blocking. Returns the lines of all ranks, in rank order, on every rank. The
// lines of a rank may not contain a newline.
std::vector<std::vector<std::string>> gather_lines(Communicator& comm,
                                                   const std::vector<std::string>& mine);

}  // namespace trireme
