#include "support/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::testing {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;
constexpr int kPoison = 0xdd;

}  // namespace

FakeCuda::FakeCuda(std::uint64_t seed, std::size_t memory)
    : random_(seed), eager_(seed != 0), memory_(memory) {}

FakeCuda::~FakeCuda() = default;

void FakeCuda::fail_call(std::size_t n) {
  fails_at_ = n == 0 ? 0 : calls_ + n;
}
void FakeCuda::fail_all(bool fail) {
  fails_ = fail;
}

void FakeCuda::call(const char* name) {
  ++calls_;
  if (fails_ || calls_ == fails_at_) throw CudaError(std::string(name) + ": scripted failure");
  move_a_little();
}

void FakeCuda::move_a_little() {
  if (!eager_ || streams_.empty()) return;
  for (auto turns = random_() % 4; turns > 0; --turns) {
    run_one(*streams_[random_() % streams_.size()]);
  }
}

bool FakeCuda::run_one(StreamState& stream) {
  if (stream.queue.empty()) return false;
  Operation& head = stream.queue.front();
  if (!head.run && !may_pass(head)) return false;
  const Operation operation = std::move(head);
  stream.queue.pop_front();
  if (operation.run) operation.run();
  return true;
}

bool FakeCuda::may_pass(const Operation& wait) {
  if (wait.ended) return wait.ended();
  if (wait.event) return wait.event->finished >= wait.times;
  if (!inside(pinned_, wait.word, sizeof *wait.word)) {
    faults_.push_back("a wait for freed pinned memory");
    return true;
  }
  std::atomic_ref<std::uint32_t> word(*const_cast<std::uint32_t*>(wait.word));
  return static_cast<std::int32_t>(word.load(std::memory_order_acquire) - wait.value) >= 0;
}

bool FakeCuda::others_can_move() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) {
    if (stream->queue.empty()) return false;
    const Operation& head = stream->queue.front();
    return head.word != nullptr || head.ended;
  });
}

void FakeCuda::run_until(const std::function<bool()>& reached, const std::string& what) {
  std::int64_t last_move_ns = now_ns();
  while (!reached()) {
    const std::size_t first = eager_ ? random_() % streams_.size() : 0;
    bool moved = false;
    for (std::size_t i = 0; i < streams_.size() && !moved; ++i) {
      moved = run_one(*streams_[(first + i) % streams_.size()]);
    }
    if (moved) {
      last_move_ns = now_ns();
      continue;
    }
    const bool too_long = static_cast<double>(now_ns() - last_move_ns) > 1e9 * deadlock_seconds;
    if (!others_can_move() || too_long) {
      throw CudaError(what + " waits for ever: no stream can move");
    }
    mutex_.unlock();  // as CUDA does, which waits in no other thread's way
    usleep(50);
    mutex_.lock();
  }
}

void FakeCuda::step() {
  const Lock lock(mutex_);
  for (const auto& stream : streams_) run_one(*stream);
}

void FakeCuda::run_all() {
  const Lock lock(mutex_);
  run_until(
      [&] {
        return std::all_of(streams_.begin(), streams_.end(),
                           [](const auto& stream) { return stream->queue.empty(); });
      },
      "run_all");
}

FakeCuda::StreamState& FakeCuda::state(cuda::StreamHandle stream) {
  auto& found = *static_cast<StreamState*>(stream);
  if (found.destroyed) faults_.push_back("a stream was used after its end");
  return found;
}

void FakeCuda::enqueue(const Stream& stream, std::function<void()> work) {
  const Lock lock(mutex_);
  state(stream.native()).queue.push_back({std::move(work), nullptr, nullptr});
  move_a_little();
}

void FakeCuda::enqueue_until(const Stream& stream, std::function<bool()> ended) {
  const Lock lock(mutex_);
  state(stream.native()).queue.push_back({nullptr, std::move(ended), nullptr});
  move_a_little();
}

void FakeCuda::move() {
  const Lock lock(mutex_);
  move_a_little();
}

void* FakeCuda::add(Memory& memory, std::size_t bytes) {
  std::vector<std::byte> block(bytes, std::byte{kPoison});
  std::byte* address = block.data();
  memory.emplace(address, std::move(block));
  return address;
}

bool FakeCuda::inside(const Memory& memory, const void* address, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(address);
  auto block = memory.upper_bound(first);
  if (block == memory.begin()) return false;
  --block;
  return first + bytes <= block->first + block->second.size();
}

void FakeCuda::check_access(const void* address, std::size_t bytes, const char* what) {
  const Lock lock(mutex_);
  if (!inside(device_, address, bytes)) faults_.push_back(std::string(what) + " of freed memory");
}

cuda::DeviceProperties FakeCuda::properties(int device) {
  const Lock lock(mutex_);
  call("properties");
  return {"fake GPU",
          uuid + " " + std::to_string(device),
          "0000:0" + std::to_string(device) + ":00.0",
          9,
          0,
          memory_,
          4,
          true};
}

void FakeCuda::set_device(int) {
  const Lock lock(mutex_);
  call("set_device");
}

cuda::MemoryInfo FakeCuda::memory_info(int) {
  const Lock lock(mutex_);
  call("memory_info");
  return {memory_ - used_, memory_};
}

void* FakeCuda::allocate(std::size_t bytes, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("allocate");
  state(stream);
  if (used_ + bytes > memory_) return nullptr;
  used_ += bytes;
  return add(device_, bytes);
}

void FakeCuda::free(void* memory, cuda::StreamHandle stream) noexcept {
  const Lock lock(mutex_);
  state(stream).queue.push_back({[this, memory] {
                                   const auto block = device_.find(static_cast<std::byte*>(memory));
                                   if (block == device_.end()) {
                                     faults_.push_back("freed twice");
                                     return;
                                   }
                                   used_ -= block->second.size();
                                   device_.erase(block);
                                 },
                                 nullptr, nullptr});
}

void FakeCuda::release_freed(int) noexcept {
  try {
    run_all();
  } catch (const Error& error) {
    const Lock lock(mutex_);
    faults_.push_back(error.what());
  }
  const Lock lock(mutex_);
  ++host_waits_;
}

void* FakeCuda::allocate_pinned(std::size_t bytes) {
  const Lock lock(mutex_);
  call("allocate_pinned");
  return add(pinned_, bytes);
}

void FakeCuda::free_pinned(void* memory) noexcept {
  const Lock lock(mutex_);
  if (pinned_.erase(static_cast<std::byte*>(memory)) == 0) faults_.push_back("freed twice");
}

void FakeCuda::copy(void* to, const void* from, std::size_t bytes, cuda::CopyDirection direction,
                    cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("copy");
  const void* host = direction == cuda::CopyDirection::kToDevice ? from : to;
  const bool pinned = direction == cuda::CopyDirection::kOnDevice || inside(pinned_, host, bytes);
  state(stream).queue.push_back({[=, this] {
                                   if (direction != cuda::CopyDirection::kToHost) {
                                     check_access(to, bytes, "a copy to");
                                   }
                                   if (direction != cuda::CopyDirection::kToDevice) {
                                     check_access(from, bytes, "a copy from");
                                   }
                                   if (pinned && direction != cuda::CopyDirection::kOnDevice &&
                                       !inside(pinned_, host, bytes)) {
                                     faults_.push_back("a copy of freed pinned memory");
                                   }
                                   std::memmove(to, from, bytes);
                                 },
                                 nullptr, nullptr});
  if (!pinned) {  // as CUDA does with memory that it cannot reach by itself
    ++host_waits_;
    run_until([&] { return state(stream).queue.empty(); }, "copy");
  }
}

void FakeCuda::fill(void* memory, int byte, std::size_t bytes, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("fill");
  state(stream).queue.push_back({[=, this] {
                                   check_access(memory, bytes, "a fill");
                                   std::memset(memory, byte, bytes);
                                 },
                                 nullptr, nullptr});
}

cuda::StreamHandle FakeCuda::create_stream(int, bool) {
  const Lock lock(mutex_);
  call("create_stream");
  streams_.push_back(std::make_unique<StreamState>());
  return streams_.back().get();
}

void FakeCuda::destroy_stream(cuda::StreamHandle stream) noexcept {
  const Lock lock(mutex_);
  state(stream).destroyed = true;
  ++destroyed_;
}

void FakeCuda::synchronize(cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("synchronize");
  ++host_waits_;
  run_until([&] { return state(stream).queue.empty(); }, "synchronize");
}

void FakeCuda::wait(cuda::StreamHandle stream, cuda::EventHandle event) {
  const Lock lock(mutex_);
  call("wait");
  const std::shared_ptr<EventState>& marked = events_.at(event);
  if (marked->recorded == 0) return;
  state(stream).queue.push_back({nullptr, nullptr, marked, marked->recorded});
}

bool FakeCuda::wait_value(cuda::StreamHandle stream, const std::uint32_t* word,
                          std::uint32_t value) {
  const Lock lock(mutex_);
  call("wait_value");
  if (!waits_for_memory) return false;
  if (!inside(pinned_, word, sizeof *word)) faults_.push_back("a wait for memory not pinned");
  Operation wait;
  wait.word = word;
  wait.value = value;
  state(stream).queue.push_back(std::move(wait));
  return true;
}

cuda::EventHandle FakeCuda::create_event(int) {
  const Lock lock(mutex_);
  call("create_event");
  auto made = std::make_shared<EventState>();
  EventState* handle = made.get();
  events_.emplace(handle, std::move(made));
  return handle;
}

cuda::EventHandle FakeCuda::create_timed_event(int device) {
  const Lock lock(mutex_);
  const cuda::EventHandle made = create_event(device);
  events_.at(made)->timed = true;
  return made;
}

double FakeCuda::seconds_between(cuda::EventHandle begin, cuda::EventHandle end) {
  const Lock lock(mutex_);
  call("seconds_between");
  for (const cuda::EventHandle event : {begin, end}) {
    const EventState& marked = *events_.at(event);
    const bool done = marked.recorded > 0 && marked.finished == marked.recorded;
    if (!marked.timed || !done) throw CudaError("seconds_between: an event without a time");
  }
  return events_.at(end)->seconds - events_.at(begin)->seconds;
}

void FakeCuda::destroy_event(cuda::EventHandle event) noexcept {
  const Lock lock(mutex_);
  if (events_.erase(event) == 0) faults_.push_back("an event was ended twice");
}

void FakeCuda::record(cuda::EventHandle event, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("record");
  const std::shared_ptr<EventState> marked = events_.at(event);
  const int times = ++marked->recorded;
  state(stream).queue.push_back({[this, marked, times] {
                                   marked->finished = std::max(marked->finished, times);
                                   if (marked->timed) marked->seconds = device_seconds();
                                 },
                                 nullptr, nullptr});
}

bool FakeCuda::done(cuda::EventHandle event) {
  const Lock lock(mutex_);
  call("done");
  const EventState& marked = *events_.at(event);
  return marked.finished >= marked.recorded;
}

void FakeCuda::synchronize_event(cuda::EventHandle event) {
  const Lock lock(mutex_);
  call("synchronize_event");
  ++host_waits_;
  const std::shared_ptr<EventState> marked = events_.at(event);
  run_until([&] { return marked->finished >= marked->recorded; }, "synchronize_event");
}

}  // namespace trireme::testing
