#include "plan/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/thread.h"

namespace trireme::plan {

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> faults(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        faults[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    try {
      while (others.size() + 1 < std::min(cores, count)) {
        others.push_back(start_thread("a forecast", work));
      }
    } catch (const Error&) {
      // The threads that there are do it.
    }
    work();
  }
  for (const std::exception_ptr& fault : faults) {
    if (fault) std::rethrow_exception(fault);
  }
}

}  // namespace trireme::plan
