// Which limits of the process a user may raise, as words that end a message.
#pragma once

#include <string>

namespace trireme {

// Says what limits memory: empty where only the machine does, else "; ulimit -v allows ... MiB of
// addresses".
std::string words_on_memory_limit();

// Says what limits threads: "see ulimit -u (...), ..., and pids.max of the control group".
std::string words_on_thread_limits();

}  // namespace trireme
