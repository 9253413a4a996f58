// The threads of the program are made here alone.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace trireme {

// Starts a thread with all signals blocked: the main thread handles signals. `purpose` completes
// "no thread for ...". Throws an Error with ExitStatus::kDevice if the system gives no thread. What
// `body` throws ends the process, with one line and the status of the fault.
std::jthread start_thread(std::string_view purpose, std::function<void()> body);

// Ends the process by one line and the status of the fault instead of a core dump where the
// language calls std::terminate, as when memory ends in a destructor. Call it once, in main.
void end_by_line_on_terminate();

}  // namespace trireme
