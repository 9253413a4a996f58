// Preloaded into a program, it stands for a limit on threads: the program can have $THREAD_LIMIT
// besides its first one at a time.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>

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
  const bool fits = ++living <= (limit == nullptr ? 1 << 20 : std::atoi(limit));
  auto* const start = fits ? new (std::nothrow) Start{function, argument} : nullptr;
  if (start == nullptr) {
    --living;
    return EAGAIN;
  }
  return next(thread, attributes, run, start);
}
