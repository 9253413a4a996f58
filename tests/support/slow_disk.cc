// Preloaded into a program, it simulates a slow disk. On rank 0 each fsync of a checkpoint that is
// being written (*.partial) takes $SLOW_DISK_SECONDS longer.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <unistd.h>

namespace {

// Whether this is a checkpoint that is being written: RUN/checkpoints/step-00000001.h5.7.partial.
bool is_checkpoint(std::string_view path) {
  return path.find("/checkpoints/step-") != std::string_view::npos && path.ends_with(".partial");
}

}  // namespace

extern "C" int fsync(int file) {
  static auto* const next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  const char* seconds = std::getenv("SLOW_DISK_SECONDS");
  const char* rank = std::getenv("PMI_RANK");
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path);
  if (seconds != nullptr && rank != nullptr && std::string_view(rank) == "0" && length > 0 &&
      is_checkpoint({path, static_cast<std::size_t>(length)})) {
    usleep(static_cast<useconds_t>(std::atof(seconds) * 1e6));
  }
  return next(file);
}
