#include "support/block_emulator.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include <boost/context/detail/fcontext.hpp>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

thread_local trireme::emulator::Index3 threadIdx;
thread_local trireme::emulator::Index3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace trireme::emulator {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStack = std::size_t{128} << 10;  // the sanitizer's frames are large
constexpr unsigned kLargestBlock = 1024;
constexpr unsigned kWarp = 32;
// The shared memory that every GPU since Ampere has, in bytes: for the arrays that a kernel
// declares, and for a block in all.
constexpr std::size_t kDeclaredShared = std::size_t{48} << 10;
constexpr std::size_t kShared = std::size_t{99} << 10;

// Memory for the stacks of a block's threads. Only pages that are touched take memory.
class Stacks {
 public:
  Stacks()
      : base_(mmap(nullptr, kLargestBlock * kStack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (base_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Stacks() { munmap(base_, kLargestBlock * kStack); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::byte* bottom(std::size_t thread) const {
    return static_cast<std::byte*>(base_) + thread * kStack;
  }

 private:
  void* base_;
};

// What a thread waits for. It determines how the values of all threads become the result.
enum class Wait { kNothing, kBlock, kSync, kShuffle, kBallot, kAdd, kMax, kMin, kTensor };
constexpr std::size_t kWaits = 9;

const char* name_of(Wait wait) {
  static constexpr const char* kNames[kWaits] = {"nothing",     "__syncthreads", "__syncwarp",
                                                 "a shuffle",   "a vote",        "a reduction",
                                                 "a reduction", "a reduction",   "tensor cores"};
  return kNames[static_cast<std::size_t>(wait)];
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Thread {
  context::fcontext_t fiber = nullptr;
  Index3 index{};
  bool done = false;
  Wait wait = Wait::kNothing;
  unsigned mask = 0;
  std::uint64_t value = 0;
  int source = 0;
  std::uint64_t result = 0;
  void* fake_stack = nullptr;     // the address sanitizer's
  std::vector<Copy> copies = {};  // started, not made yet
};

struct SharedArray {
  const char* file;
  int line;
  std::unique_ptr<std::byte[]> memory;
};

class Block {
 public:
  Block(const Stacks& stacks, dim3 shape, std::size_t shared_bytes,
        const std::function<void()>& body, std::mt19937_64* random)
      : stacks_(stacks),
        body_(body),
        random_(random),
        threads_(std::size_t{shape.x} * shape.y * shape.z) {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      threads_[i].index = {static_cast<unsigned>(i % shape.x),
                           static_cast<unsigned>(i / shape.x % shape.y),
                           static_cast<unsigned>(i / shape.x / shape.y)};
    }
    if (random_ != nullptr) {
      slowness_.resize((threads_.size() + kWarp - 1) / kWarp);
      for (unsigned& rounds : slowness_) rounds = 1u << (*random_)() % 4;
    }
    take_shared(0, shared_bytes);
    if (shared_bytes != 0) dynamic_ = poisoned(shared_bytes);
  }

  void run();

  // The threads call these.
  std::uint64_t wait(Wait what, unsigned mask, std::uint64_t value, int source);
  unsigned lane() const { return running_ % kWarp; }
  unsigned active_mask() const;
  // Calls body with what all lanes of the running warp have brought. They wait for each other.
  template <class Brought, class Body>
  void with_warp(const Brought& mine, const Body& body);
  void* shared_array(const char* file, int line, std::size_t bytes);
  void* dynamic() const { return dynamic_.get(); }
  void start_copy(void* to, const void* from, std::size_t bytes);
  void wait_for_copies();

 private:
  static std::unique_ptr<std::byte[]> poisoned(std::size_t bytes) {
    auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memset(memory.get(), 0xff, bytes);  // NaN in every floating type, -1 in integers
    return memory;
  }
  void take_shared(std::size_t declared, std::size_t dynamic);
  static void entry(context::transfer_t from);
  void start(std::size_t thread);
  void resume(std::size_t thread);
  void switch_back(bool last);
  void release_block();
  void release_warp(std::size_t thread);
  void resolve(Thread& thread, std::size_t warp, unsigned mask);
  [[noreturn]] void report_stuck() const;
  // Draws the order of threads that can go on. Some wait for a later round, in next_.
  void order(std::vector<std::size_t>& threads);

  const Stacks& stacks_;
  const std::function<void()>& body_;
  std::mt19937_64* random_;
  std::vector<Thread> threads_;
  std::unique_ptr<std::byte[]> dynamic_;
  std::vector<SharedArray> arrays_;
  std::size_t declared_shared_ = 0, dynamic_shared_ = 0;  // bytes
  std::vector<std::size_t> next_;  // released threads, to be resumed in the next round
  // Warps are of unequal speed where an order is drawn: one goes on in one of so many rounds. So it
  // falls far behind others that no barrier holds back.
  std::vector<unsigned> slowness_;
  std::size_t running_ = 0;
  std::size_t finished_ = 0;
  std::size_t at_barrier_ = 0;
  std::exception_ptr fault_;
  context::fcontext_t scheduler_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_size_ = 0;
  void* scheduler_fake_stack_ = nullptr;
};

thread_local Block* current_block = nullptr;
thread_local std::uint64_t order_seed = 0;
trireme::emulator::Queue kernel_queue;
thread_local std::uint64_t launch_count = 0;

void Block::entry(context::transfer_t from) {
  auto& block = *static_cast<Block*>(from.data);
  block.scheduler_ = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_stack_, &block.scheduler_stack_size_);
#endif
  try {
    block.body_();
  } catch (...) {
    block.fault_ = std::current_exception();
  }
  block.threads_[block.running_].done = true;
  block.switch_back(true);
}

void Block::start(std::size_t thread) {
  std::byte* bottom = stacks_.bottom(thread);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bottom, kStack);  // an earlier block may have left poison
#endif
  threads_[thread].fiber = context::make_fcontext(bottom + kStack, kStack, &Block::entry);
}

void Block::resume(std::size_t number) {
  Thread& thread = threads_[number];
  running_ = number;
  threadIdx = thread.index;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stacks_.bottom(number), kStack);
#endif
  thread.fiber = context::jump_fcontext(thread.fiber, this).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

// Switches from a thread to the scheduler. `last`: the thread has returned.
void Block::switch_back([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  const std::size_t self = running_;
  __sanitizer_start_switch_fiber(last ? nullptr : &threads_[self].fake_stack, scheduler_stack_,
                                 scheduler_stack_size_);
#endif
  scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(threads_[self].fake_stack, &scheduler_stack_,
                                  &scheduler_stack_size_);
#endif
}

void Block::order(std::vector<std::size_t>& threads) {
  if (random_ == nullptr) return;
  std::vector<bool> waits(slowness_.size());
  for (std::size_t warp = 0; warp < waits.size(); ++warp) {
    waits[warp] = (*random_)() % slowness_[warp] != 0;
  }
  const auto late = std::stable_partition(threads.begin(), threads.end(),
                                          [&](std::size_t i) { return !waits[i / kWarp]; });
  if (late != threads.begin()) {  // somebody must go on
    next_.assign(late, threads.end());
    threads.erase(late, threads.end());
  }
  std::shuffle(threads.begin(), threads.end(), *random_);
}

void Block::run() {
  std::vector<std::size_t> ready(threads_.size());
  for (std::size_t i = 0; i < ready.size(); ++i) {
    ready[i] = i;
    start(i);
  }
  while (!ready.empty()) {
    next_.clear();
    order(ready);
    for (const std::size_t number : ready) {
      resume(number);
      if (fault_) std::rethrow_exception(fault_);
      const Thread& thread = threads_[number];
      if (thread.done) {
        ++finished_;
      } else if (thread.wait == Wait::kBlock) {
        if (++at_barrier_ == threads_.size()) release_block();
      } else {
        release_warp(number);
      }
    }
    ready.swap(next_);
  }
  if (finished_ != threads_.size()) report_stuck();
}

std::uint64_t Block::wait(Wait what, unsigned mask, std::uint64_t value, int source) {
  const std::size_t self = running_;
  Thread& thread = threads_[self];
  thread.wait = what;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  if (what != Wait::kBlock && (mask >> (self % kWarp) & 1u) == 0) {
    throw KernelError(std::string("lane ") + std::to_string(self % kWarp) + " waits at " +
                      name_of(what) + " whose mask leaves it out");
  }
  switch_back(false);
  return thread.result;
}

template <class Brought, class Body>
void Block::with_warp(const Brought& mine, const Body& body) {
  constexpr unsigned kAll = 0xffffffffu;
  const auto address = reinterpret_cast<std::uintptr_t>(&mine);
  const std::size_t warp = running_ / kWarp * kWarp;
  if (warp + kWarp > threads_.size()) throw KernelError("tensor cores need a whole warp");
  wait(Wait::kTensor, kAll, address, 0);
  body([&](unsigned lane) -> const Brought& {
    return *reinterpret_cast<const Brought*>(threads_[warp + lane].value);
  });
  wait(Wait::kTensor, kAll, address, 0);  // nobody goes on before all have read
}

// The result of a block's barrier is the number of threads whose predicate holds.
void Block::release_block() {
  const auto count = static_cast<std::uint64_t>(std::count_if(
      threads_.begin(), threads_.end(), [](const Thread& t) { return t.value != 0; }));
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].wait = Wait::kNothing;
    threads_[i].result = count;
    next_.push_back(i);
  }
  at_barrier_ = 0;
}

// Releases the lanes of a warp's operation if all lanes of its mask have arrived.
void Block::release_warp(std::size_t number) {
  const std::size_t warp = number / kWarp * kWarp;
  const Thread& first = threads_[number];
  const unsigned mask = first.mask;
  const Wait what = first.wait;
  for (unsigned lane = 0; lane < kWarp && warp + lane < threads_.size(); ++lane) {
    const Thread& other = threads_[warp + lane];
    if ((mask >> lane & 1u) == 0) continue;
    if (other.done || other.wait != what || other.mask != mask) return;
  }
  for (unsigned lane = 0; lane < kWarp && warp + lane < threads_.size(); ++lane) {
    if ((mask >> lane & 1u) != 0) resolve(threads_[warp + lane], warp, mask);
  }
  for (unsigned lane = 0; lane < kWarp && warp + lane < threads_.size(); ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    threads_[warp + lane].wait = Wait::kNothing;
    next_.push_back(warp + lane);
  }
}

void Block::resolve(Thread& thread, std::size_t warp, unsigned mask) {
  if (thread.wait == Wait::kShuffle) {
    const auto source = static_cast<unsigned>(thread.source);
    if (source >= kWarp || warp + source >= threads_.size() || (mask >> source & 1u) == 0) {
      throw KernelError("a shuffle reads lane " + std::to_string(thread.source) +
                        ", which takes no part in it");
    }
    thread.result = threads_[warp + source].value;
    return;
  }
  std::uint64_t result = thread.wait == Wait::kMin ? 0xffffffffu : 0;
  for (unsigned lane = 0; lane < kWarp && warp + lane < threads_.size(); ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const std::uint64_t value = threads_[warp + lane].value;
    if (thread.wait == Wait::kBallot && value != 0) result |= std::uint64_t{1} << lane;
    if (thread.wait == Wait::kAdd) result = (result + value) & 0xffffffffu;
    if (thread.wait == Wait::kMax) result = std::max(result, value);
    if (thread.wait == Wait::kMin) result = std::min(result, value);
  }
  thread.result = result;
}

// Called when no thread can continue and not all have returned: they wait at different places.
void Block::report_stuck() const {
  std::size_t waiting[kWaits] = {};
  for (const Thread& thread : threads_) {
    if (!thread.done) ++waiting[static_cast<std::size_t>(thread.wait)];
  }
  std::string message = "a block of " + std::to_string(threads_.size()) +
                        " threads is stuck: " + std::to_string(finished_) + " have returned";
  for (std::size_t i = 1; i < kWaits; ++i) {
    if (waiting[i] == 0) continue;
    message += ", " + std::to_string(waiting[i]) + " wait at " + name_of(static_cast<Wait>(i));
  }
  throw KernelError(message);
}

void Block::start_copy(void* to, const void* from, std::size_t bytes) {
  if (random_ == nullptr || (*random_)() % 2 == 0) {
    std::memcpy(to, from, bytes);
  } else {
    threads_[running_].copies.push_back({to, from, bytes});
  }
}

void Block::wait_for_copies() {
  for (const Copy& copy : std::exchange(threads_[running_].copies, {})) {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

unsigned Block::active_mask() const {
  const std::size_t warp = running_ / kWarp * kWarp;
  unsigned mask = 0;
  for (unsigned lane = 0; lane < kWarp && warp + lane < threads_.size(); ++lane) {
    if (!threads_[warp + lane].done) mask |= 1u << lane;
  }
  return mask;
}

void Block::take_shared(std::size_t declared, std::size_t dynamic) {
  declared_shared_ += declared;
  dynamic_shared_ += dynamic;
  if (declared_shared_ <= kDeclaredShared && declared_shared_ + dynamic_shared_ <= kShared) return;
  throw KernelError("a block takes " + std::to_string(declared_shared_) + " + " +
                    std::to_string(dynamic_shared_) + " bytes of shared memory");
}

void* Block::shared_array(const char* file, int line, std::size_t bytes) {
  for (const SharedArray& array : arrays_) {
    if (array.line == line && std::strcmp(array.file, file) == 0) return array.memory.get();
  }
  take_shared(bytes, 0);
  arrays_.push_back({file, line, poisoned(bytes)});
  return arrays_.back().memory.get();
}

Block& block() {
  if (current_block == nullptr) throw KernelError("device code was called outside a kernel");
  return *current_block;
}

// Sets the block that runs, while run_grid runs it.
class Current {
 public:
  explicit Current(Block* block) { current_block = block; }
  ~Current() { current_block = nullptr; }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

const Stacks& stacks() {
  thread_local const Stacks mine;
  return mine;
}

void check_launch(dim3 grid, dim3 shape) {
  const std::size_t threads = std::size_t{shape.x} * shape.y * shape.z;
  if (threads == 0 || threads > kLargestBlock || shape.z > 64) {
    throw KernelError("a block of " + std::to_string(shape.x) + " x " + std::to_string(shape.y) +
                      " x " + std::to_string(shape.z) + " threads");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    throw KernelError("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
                      " x " + std::to_string(grid.z) + " blocks");
  }
}

}  // namespace

std::uint64_t shuffle(unsigned mask, std::uint64_t value, int source) {
  return block().wait(Wait::kShuffle, mask, value, source);
}
int lane() {
  return static_cast<int>(block().lane());
}
void* shared_array(const char* file, int line, std::size_t bytes) {
  return block().shared_array(file, line, bytes);
}
void* dynamic_shared() {
  return block().dynamic();
}
void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                  float (*value)(std::uint16_t)) {
  struct Registers {
    unsigned a[4], b[2];
  };
  const Registers mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const unsigned self = block().lane(), row = self / 4, column = self % 4 * 2;
  const auto element = [&](unsigned word, unsigned place) {
    return value(static_cast<std::uint16_t>(place % 2 == 0 ? word & 0xffffu : word >> 16));
  };
  block().with_warp(mine, [&](const auto& lane) {
    for (unsigned i = 0; i < 4; ++i) {
      for (unsigned k = 0; k < 16; ++k) {
        const Registers& of_a = lane(row * 4 + k % 8 / 2);
        const Registers& of_b = lane((column + i % 2) * 4 + k % 8 / 2);
        c[i] += element(of_a.a[i / 2 + k / 8 * 2], k) * element(of_b.b[k / 8], k);
      }
    }
  });
}
void load_matrices(unsigned (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    throw KernelError("a row of a matrix is not at a multiple of 16 bytes");
  }
  const unsigned self = block().lane();
  block().with_warp(row, [&](const auto& lane) {
    for (unsigned m = 0; m < 4; ++m) {
      const auto at = [&](unsigned r, unsigned c) -> unsigned {
        return static_cast<const std::uint16_t*>(lane(m * 8 + r))[c];
      };
      const unsigned g = self / 4, t = self % 4 * 2;
      to[m] = transposed ? at(t, g) | at(t + 1, g) << 16 : at(g, t) | at(g, t + 1) << 16;
    }
  });
}

void set_order(std::uint64_t seed) {
  order_seed = seed;
}
std::uint64_t launches() {
  return launch_count;
}

void set_queue(Queue queue) {
  kernel_queue = std::move(queue);
}
void queue(void* stream, std::function<void()> kernel) {
  if (!kernel_queue) return kernel();
  kernel_queue(stream, std::move(kernel));
}

void start_copy(void* to, const void* from, std::size_t bytes) {
  block().start_copy(to, from, bytes);
}
void wait_for_copies() {
  block().wait_for_copies();
}

void run_grid(dim3 grid, dim3 shape, std::size_t shared_bytes,
              const std::function<void()>& thread) {
  check_launch(grid, shape);
  ++launch_count;
  std::mt19937_64 random(order_seed * 0x9e3779b97f4a7c15u + launch_count);
  gridDim = grid;
  blockDim = shape;
  std::vector<std::size_t> blocks(std::size_t{grid.x} * grid.y * grid.z);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = i;
  if (order_seed != 0) std::shuffle(blocks.begin(), blocks.end(), random);
  for (const std::size_t number : blocks) {
    blockIdx = {static_cast<unsigned>(number % grid.x),
                static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    Block running(stacks(), shape, shared_bytes, thread, order_seed == 0 ? nullptr : &random);
    const Current current(&running);
    running.run();
  }
}

}  // namespace trireme::emulator

namespace emulator = trireme::emulator;

void __syncthreads() {
  emulator::block().wait(emulator::Wait::kBlock, 0, 0, 0);
}
int __syncthreads_count(int predicate) {
  const std::uint64_t holds = predicate != 0 ? 1 : 0;
  return static_cast<int>(emulator::block().wait(emulator::Wait::kBlock, 0, holds, 0));
}
int __syncthreads_or(int predicate) {
  return __syncthreads_count(predicate) != 0 ? 1 : 0;
}
int __syncthreads_and(int predicate) {
  return __syncthreads_count(predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}
void __syncwarp(unsigned mask) {
  emulator::block().wait(emulator::Wait::kSync, mask, 0, 0);
}
unsigned __ballot_sync(unsigned mask, int predicate) {
  const std::uint64_t holds = predicate != 0 ? 1 : 0;
  return static_cast<unsigned>(emulator::block().wait(emulator::Wait::kBallot, mask, holds, 0));
}
int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}
unsigned __activemask() {
  return emulator::block().active_mask();
}
unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulator::block().wait(emulator::Wait::kAdd, mask, value, 0));
}
unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulator::block().wait(emulator::Wait::kMax, mask, value, 0));
}
unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulator::block().wait(emulator::Wait::kMin, mask, value, 0));
}
int atomicAdd(int* to, int value) {
  const int before = *to;
  *to = before + value;
  return before;
}
unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to = before + value;
  return before;
}
int atomicMax(int* to, int value) {
  const int before = *to;
  *to = std::max(before, value);
  return before;
}
unsigned atomicInc(unsigned* to, unsigned most) {
  const unsigned before = *to;
  *to = before >= most ? 0 : before + 1;
  return before;
}
