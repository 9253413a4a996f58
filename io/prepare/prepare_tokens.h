// Tokens that other programs have made into shards.
#pragma once

#include "trireme/io/prepare.h"

namespace trireme {

// The work of prepare() for options.tokens.
PrepareResult prepare_tokens(const PrepareOptions& options, Communicator* world);

}  // namespace trireme
