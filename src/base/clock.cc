#include "trireme/base/clock.h"

#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>

#include <unistd.h>

#include "trireme/base/kernel_files.h"

namespace trireme {

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double process_seconds() {
  const std::string text = kernel_text("/proc/self/stat");
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0.0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  // The state is field 3 and the start, in ticks since boot, field 22 (proc(5)).
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  const double ticks = std::strtod(field.c_str(), nullptr);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9 -
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace trireme
