// Independent pieces of work on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace trireme::plan {

// Calls body(0) to body(count - 1), each once, on as many threads as there are cores. Throws what
// the piece with the lowest number threw, after all have ended. Where the system gives no threads,
// the caller does all of it.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace trireme::plan
