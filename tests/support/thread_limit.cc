// Preloaded into a program, it stands for a limit on threads: the program can have $THREAD_LIMIT
// besides its first one at a time.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>
#include <pthread.h>

namespace {

std::atomic<int> living = 0;

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run(void* given) {
  const std::unique_ptr<Start> start(static_cast<Start*>(given));
  void* const result = start->function(start->argument);
  --living;
  return result;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*function)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* limit = std::getenv("THREAD_LIMIT");
  if (++living > (limit == nullptr ? 1 << 20 : std::atoi(limit))) {
    --living;
    return EAGAIN;
  }
  auto* const start = new Start{function, argument};
  return next(thread, attributes, run, start);
}
