// Threads of the runtime.
#pragma once

#include <functional>
#include <thread>

namespace trireme {

// Starts a thread with all signals blocked: the main thread handles signals.
std::thread start_quiet_thread(std::function<void()> body);

}  // namespace trireme
