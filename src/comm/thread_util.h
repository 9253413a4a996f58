// Threads of the runtime.
#pragma once

#include <functional>
#include <thread>

namespace trireme {

// A thread that no signal is delivered to: signals are the main thread's.
std::thread start_quiet_thread(std::function<void()> body);

}  // namespace trireme
