// Which limits of the process a user may raise, as words that end a message.
#pragma once

#include <string>

namespace trireme {

// Of memory: empty where only the machine limits it, else "; ulimit -v allows ... MiB of
// addresses".
std::string words_on_memory_limit();

// Of threads: "see ulimit -u (...), ..., and pids.max of the control group".
std::string words_on_thread_limits();

}  // namespace trireme
