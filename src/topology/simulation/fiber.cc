#include "topology/simulation/fiber.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "trireme/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace trireme {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// The exceptions that a thread has caught and those in flight, as the C++ ABI keeps them: a pointer
// and a count.
class Exceptions {
 public:
  void exchange_with_thread() {
    auto* const thread = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
    std::swap_ranges(kept_.begin(), kept_.end(), thread);
  }

 private:
  std::array<std::byte, 2 * sizeof(void*)> kept_{};
};

}  // namespace

struct Fiber::State {
  State(std::size_t stack_bytes, std::function<void()> given);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static void enter(unsigned high, unsigned low);
  void switch_in();
  void switch_out();

  std::function<void()> body;
  std::size_t bytes;  // of the stack, without the guard
  std::byte* memory = nullptr;
  ucontext_t own{}, caller{};
  Exceptions exceptions;
  bool has_ended = false;
  // What the sanitizers must know of the stacks.
  void* fake_stack = nullptr;
  void* caller_fake_stack = nullptr;
  const void* caller_bottom = nullptr;
  std::size_t caller_bytes = 0;
  void* thread = nullptr;
  void* caller_thread = nullptr;

  std::byte* stack() const { return memory + page_size(); }
};

Fiber::State::State(std::size_t stack_bytes, std::function<void()> given)
    : body(std::move(given)), bytes((stack_bytes + page_size() - 1) / page_size() * page_size()) {
  void* const mapped = mmap(nullptr, bytes + page_size(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) throw OutOfMemoryError("no memory for the stack of a fiber");
  memory = static_cast<std::byte*>(mapped);
  mprotect(memory, page_size(), PROT_NONE);
  getcontext(&own);
  own.uc_stack.ss_sp = stack();
  own.uc_stack.ss_size = bytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&own, reinterpret_cast<void (*)()>(&State::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#if defined(__SANITIZE_THREAD__)
  thread = __tsan_create_fiber(0);
#endif
}

Fiber::State::~State() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(thread);
#endif
  munmap(memory, bytes + page_size());
}

void Fiber::State::enter(unsigned high, unsigned low) {
  auto* const self =
      reinterpret_cast<State*>(static_cast<std::uintptr_t>(high) << 32 | std::uintptr_t{low});
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_bottom, &self->caller_bytes);
#endif
  self->body();
  self->has_ended = true;
  self->switch_out();
}

void Fiber::State::switch_in() {
  exceptions.exchange_with_thread();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fake_stack, stack(), bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  caller_thread = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread, 0);
#endif
  swapcontext(&caller, &own);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fake_stack, nullptr, nullptr);
#endif
  exceptions.exchange_with_thread();
}

void Fiber::State::switch_out() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(has_ended ? nullptr : &fake_stack, caller_bottom, caller_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_thread, 0);
#endif
  swapcontext(&own, &caller);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &caller_bottom, &caller_bytes);
#endif
}

Fiber::Fiber(std::size_t stack_bytes, std::function<void()> body)
    : state_(std::make_unique<State>(stack_bytes, std::move(body))) {}

Fiber::~Fiber() = default;

void Fiber::resume() {
  TRIREME_CHECK(!state_->has_ended, "a fiber that has ended cannot go on");
  state_->switch_in();
}

void Fiber::suspend() {
  state_->switch_out();
}

bool Fiber::ended() const {
  return state_->has_ended;
}

std::size_t Fiber::stack_used() const {
  std::vector<unsigned char> pages(state_->bytes / page_size());
  if (mincore(state_->stack(), state_->bytes, pages.data()) != 0) return 0;
  const auto present = std::ranges::count_if(pages, [](unsigned char page) { return page & 1; });
  return static_cast<std::size_t>(present) * page_size();
}

}  // namespace trireme
