// Preloaded into members of a run that several jobs carry, it makes them fail where a test wants
// it: a file of the folder $ISLAND_FAULTS asks for it.
//   leader, before-state, after-state, before-record, after-record, removal
//                  the next member that comes to this point takes the file away, and dies
//   cut-N          while it is there, task N of the job array opens none of the run's shared files
//   slow           while it is there, a record takes a second longer
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string control(const std::string& name) {
  const char* folder = std::getenv("ISLAND_FAULTS");
  return folder == nullptr ? std::string() : std::string(folder) + "/" + name;
}

bool wanted(const std::string& name) {
  const std::string path = control(name);
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

void die_at(const char* point) {
  static auto* const next = next_of<int(const char*)>("unlink");
  const std::string path = control(point);
  if (!path.empty() && next(path.c_str()) == 0) kill(getpid(), SIGKILL);
}

bool holds(std::string_view path, std::string_view part) {
  return path.find(part) != std::string_view::npos;
}

bool is_record(std::string_view path) {
  return holds(path, "/outer/outer-") && path.ends_with(".json");
}

bool is_state(std::string_view path) {
  return holds(path, "/outer/state-");
}

bool is_cut(const char* path) {
  const char* task = std::getenv("SLURM_ARRAY_TASK_ID");
  const bool shared = holds(path, "/outer/") || (holds(path, "/islands/") && !holds(path, "lease"));
  return task != nullptr && shared && wanted(std::string("cut-") + task);
}

}  // namespace

extern "C" int link(const char* from, const char* to) {
  static auto* const next = next_of<int(const char*, const char*)>("link");
  const bool record = is_record(to);
  if (record && wanted("slow")) usleep(1'000'000);
  if (record) die_at("before-record");
  const int result = next(from, to);
  if (record && result == 0) die_at("after-record");
  return result;
}

extern "C" int rename(const char* from, const char* to) {
  static auto* const next = next_of<int(const char*, const char*)>("rename");
  if (is_state(to)) die_at("before-state");
  const int result = next(from, to);
  if (is_state(to)) die_at("after-state");
  if (std::string_view(to).ends_with("/outer/leader")) die_at("leader");
  return result;
}

extern "C" int unlink(const char* path) {
  static auto* const next = next_of<int(const char*)>("unlink");
  if (is_state(path) && std::string_view(path).ends_with(".h5")) die_at("removal");
  return next(path);
}

extern "C" int open(const char* path, int flags, ...) {
  static auto* const next = next_of<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (is_cut(path)) {
    errno = EIO;
    return -1;
  }
  return next(path, flags, mode);
}
