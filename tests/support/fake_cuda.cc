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
  const Lock lock(mutex_);
  fails_at_ = n == 0 ? 0 : calls_ + n;
}
void FakeCuda::fail_all(bool fail) {
  const Lock lock(mutex_);
  fails_ = fail;
}

void FakeCuda::call(const char* name) {
  ++calls_;
  if (fails_ || calls_ == fails_at_) throw CudaError(std::string(name) + ": scripted failure");
  move_a_little();
}

void FakeCuda::call_outside_of_capture(const char* name) {
  call(name);
  if (capture_.number != 0 && capture_.thread == std::this_thread::get_id()) {
    throw CudaError(std::string(name) + ": not permitted while a stream is captured");
  }
}

void FakeCuda::push(cuda::StreamHandle stream, Operation operation) {
  StreamState& to = state(stream);
  if (!to.captured) {
    if (operation.start) operation.ended = operation.start();
    to.queue.push_back(std::move(operation));
    return;
  }
  capture_.nodes.push_back({std::move(operation), to.last});
  to.last = {capture_.nodes.size() - 1};
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
  ++moves_;
  return true;
}

bool FakeCuda::may_pass(const Operation& wait) {
  if (wait.ended) return wait.ended();
  return wait.event->finished >= wait.times;
}

bool FakeCuda::others_can_move() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) {
    return !stream->queue.empty() && stream->queue.front().ended;
  });
}

void FakeCuda::run_until(const std::function<bool()>& reached, const std::string& what) {
  std::int64_t last_move_ns = now_ns();
  while (!reached()) {
    const std::size_t first = eager_ ? random_() % streams_.size() : 0;
    const std::size_t moves = moves_;
    for (std::size_t i = 0; i < streams_.size() && moves_ == moves; ++i) {
      run_one(*streams_[(first + i) % streams_.size()]);
    }
    if (moves_ != moves) {
      last_move_ns = now_ns();
      continue;
    }
    const bool too_long = static_cast<double>(now_ns() - last_move_ns) > 1e9 * deadlock_seconds;
    if (!others_can_move() || too_long) {
      throw CudaError(what + " waits for ever: no stream can move");
    }
    mutex_.unlock();  // like CUDA, a waiting thread does not block others
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
  push(stream.native(), {.run = std::move(work)});
  move_a_little();
}

void FakeCuda::enqueue_until(const Stream& stream, std::function<std::function<bool()>()> start) {
  const Lock lock(mutex_);
  push(stream.native(), {.start = std::move(start)});
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
  if (stream != nullptr && state(stream).captured) {
    throw CudaError("allocate: on a stream that is captured");
  }
  if (used_ + bytes > memory_) return nullptr;
  used_ += bytes;
  void* memory = add(device_, bytes);
  if (stream == nullptr) shareable_.insert(static_cast<std::byte*>(memory));
  return memory;
}

bool FakeCuda::is_shareable(const void* address, std::size_t bytes) const {
  const Lock lock(mutex_);
  if (!inside(device_, address, bytes)) return false;
  const auto block = device_.upper_bound(static_cast<const std::byte*>(address));
  return shareable_.contains(std::prev(block)->first);
}

void FakeCuda::free(void* memory, cuda::StreamHandle stream) noexcept {
  const Lock lock(mutex_);
  const auto drop = [this, memory] {
    const auto block = device_.find(static_cast<std::byte*>(memory));
    if (block == device_.end()) {
      faults_.push_back("freed twice");
      return;
    }
    used_ -= block->second.size();
    device_.erase(block);
  };
  const bool shareable = shareable_.erase(static_cast<std::byte*>(memory)) > 0;
  if (shareable != (stream == nullptr)) faults_.push_back("memory was freed as what it is not");
  if (stream == nullptr) return drop();
  if (state(stream).captured) faults_.push_back("memory was freed on a stream that is captured");
  push(stream, {.run = drop});
}

void FakeCuda::release_freed(int) noexcept {
  if (capture_.number != 0)
    faults_.push_back("the device was waited for while a stream was captured");
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
  call_outside_of_capture("allocate_pinned");
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
  if (!pinned && state(stream).captured) {
    throw CudaError("copy: of memory that is not pinned, while a stream is captured");
  }
  push(stream, {.run = [=, this] {
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
       }});
  if (!pinned) {  // like CUDA, the host waits if its memory is not pinned
    ++host_waits_;
    run_until([&] { return state(stream).queue.empty(); }, "copy");
  }
}

void FakeCuda::fill(void* memory, int byte, std::size_t bytes, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("fill");
  push(stream, {.run = [=, this] {
         check_access(memory, bytes, "a fill");
         std::memset(memory, byte, bytes);
       }});
}

void FakeCuda::publish(std::int64_t* to, const std::int64_t* from, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("publish");
  ++published_;
  push(stream, {.run = [=, this] {
         check_access(from, sizeof *from, "publishing a number");
         if (!inside(pinned_, to, sizeof *to)) faults_.push_back("a number published elsewhere");
         std::atomic_ref(*to).store(*from, std::memory_order_release);
       }});
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
  call_outside_of_capture("synchronize");

  ++host_waits_;
  run_until([&] { return state(stream).queue.empty(); }, "synchronize");
}

void FakeCuda::wait(cuda::StreamHandle stream, cuda::EventHandle event) {
  const Lock lock(mutex_);
  call("wait");
  const std::shared_ptr<EventState>& marked = events_.at(event);
  StreamState& waiting = state(stream);
  if (marked->capture != 0) {
    if (marked->capture != capture_.number) throw CudaError("wait: for an event of a capture");
    waiting.captured = true;
    waiting.last.insert(marked->marks.begin(), marked->marks.end());
    return;
  }
  if (marked->recorded == 0) return;
  if (waiting.captured) {
    throw CudaError("wait: a captured stream waits for an event that is not");
  }
  push(stream, {.event = marked, .times = marked->recorded});
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
  const StreamState& from = state(stream);
  marked->capture = from.captured ? capture_.number : 0;
  if (from.captured) {
    marked->marks = from.last;
    return;
  }
  const int times = ++marked->recorded;
  push(stream, {.run = [this, marked, times] {
         marked->finished = std::max(marked->finished, times);
         if (marked->timed) marked->seconds = device_seconds();
       }});
}

bool FakeCuda::done(cuda::EventHandle event) {
  const Lock lock(mutex_);
  call_outside_of_capture("done");
  const EventState& marked = *events_.at(event);
  if (marked.capture != 0) throw CudaError("done: asked of an event of a capture");
  return marked.finished >= marked.recorded;
}

void FakeCuda::synchronize_event(cuda::EventHandle event) {
  const Lock lock(mutex_);
  call_outside_of_capture("synchronize_event");
  ++host_waits_;
  const std::shared_ptr<EventState> marked = events_.at(event);
  if (marked->capture != 0) throw CudaError("synchronize_event: asked of an event of a capture");
  run_until([&] { return marked->finished >= marked->recorded; }, "synchronize_event");
}

// Runs the operations whose predecessors have ended, in an order drawn from the seed if there is
// one.
class FakeCuda::Launch {
 public:
  Launch(FakeCuda& cuda, std::shared_ptr<const Nodes> nodes)
      : cuda_(cuda), nodes_(std::move(nodes)), operations_(nodes_->size()), left_(nodes_->size()) {
    for (std::size_t i = 0; i < left_; ++i) {
      const Node& node = (*nodes_)[i];
      operations_[i].missing = node.after.size();
      for (const std::size_t earlier : node.after) operations_[earlier].before.push_back(i);
      if (node.after.empty()) ready_.push_back(i);
    }
  }
  bool ended() {
    for (bool moved = true; moved;) {
      moved = false;
      if (cuda_.eager_) std::shuffle(ready_.begin(), ready_.end(), cuda_.random_);
      for (const std::size_t place : std::exchange(ready_, {})) {
        if (!run(place)) {
          ready_.push_back(place);
          continue;
        }
        moved = true;
        ++cuda_.moves_;
        --left_;
        for (const std::size_t later : operations_[place].before) {
          if (--operations_[later].missing == 0) ready_.push_back(later);
        }
      }
    }
    return left_ == 0;
  }

 private:
  bool run(std::size_t place) {
    const Operation& operation = (*nodes_)[place].operation;
    if (operation.run) {
      operation.run();
      return true;
    }
    std::function<bool()>& ended = operations_[place].ended;
    if (!ended) ended = operation.start();
    return ended();
  }

  struct Running {
    std::size_t missing = 0;
    std::vector<std::size_t> before;
    std::function<bool()> ended;
  };
  FakeCuda& cuda_;
  const std::shared_ptr<const Nodes> nodes_;
  std::vector<Running> operations_;
  std::vector<std::size_t> ready_;
  std::size_t left_;
};

void FakeCuda::begin_capture(cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call_outside_of_capture("begin_capture");
  StreamState& origin = state(stream);
  if (capture_.number != 0) throw CudaError("begin_capture: a stream is captured already");
  capture_ = {++captures_, std::this_thread::get_id(), &origin, {}};
  origin.captured = true;
}

bool FakeCuda::captures(cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  return state(stream).captured;
}

// Checks that the end of the stream where the capture began comes after every captured operation.
void FakeCuda::check_joined() const {
  Places found = capture_.origin->last;
  for (auto next = found.rbegin(); next != found.rend(); ++next) {
    const Places& after = capture_.nodes[*next].after;
    found.insert(after.begin(), after.end());  // these are lower, so the walk still reaches them
  }
  if (found.size() != capture_.nodes.size()) {
    throw CudaError("end_capture: work on another stream was not waited for");
  }
}

void FakeCuda::drop_capture() {
  for (const auto& stream : streams_) {
    stream->captured = false;
    stream->last.clear();
  }
  capture_ = {};
}

cuda::Runtime::Graph FakeCuda::end_capture(cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  if (capture_.number == 0 || capture_.origin != &state(stream)) {
    throw CudaError("end_capture: no capture began here");
  }
  try {
    call("end_capture");
    check_joined();
  } catch (...) {
    drop_capture();
    throw;
  }
  const auto nodes = std::make_shared<const Nodes>(std::move(capture_.nodes));
  drop_capture();
  void* handle = const_cast<Nodes*>(nodes.get());
  graphs_.emplace(handle, nodes);
  return {handle, nodes->size()};
}

void FakeCuda::launch(cuda::GraphHandle graph, cuda::StreamHandle stream) {
  const Lock lock(mutex_);
  call("launch");
  if (state(stream).captured) throw CudaError("launch: the stream is captured");
  ++launches_;
  const auto launched = std::make_shared<Launch>(*this, graphs_.at(graph));
  push(stream, {.ended = [launched] { return launched->ended(); }});
}

void FakeCuda::destroy_graph(cuda::GraphHandle graph) noexcept {
  const Lock lock(mutex_);
  if (graph != nullptr && graphs_.erase(graph) == 0) faults_.push_back("a graph was ended twice");
}

}  // namespace trireme::testing
