#include "comm/mpi/progress_engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/thread.h"

#include "comm/mpi/backoff.h"

namespace trireme {
namespace {

// To wake the thread costs as much as a short message where ranks share cores. So submit lets it
// sleep where hosts have waited at once for the last operations of the kind, and thus drive them
// themselves. The thread then looks once in a nap whether a host does something else for once.
constexpr std::size_t kShortBytes = 64 << 10;
constexpr auto kNap = std::chrono::milliseconds(2);

}  // namespace

class ProgressEngine::State final : public Work::State {
 public:
  // The recorder names a wait for all the operations by the `first` one.
  State(ProgressEngine& engine, std::size_t operations, const Queued& first, PromptWaits* waits)
      : engine_(engine),
        remaining_(operations),
        lane_(first.key.lane),
        name_(first.name),
        prompt_(waits) {}

  bool done() override { return remaining_.load(std::memory_order_acquire) == 0; }
  void wait_host() override {
    const std::int64_t begin = now_ns();
    if (prompt_.waited_for(begin)) engine_.hosts_drive_ = true;
    if (!done()) engine_.wait(*this, begin);
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  void wait_on(const Stream&) override { wait_host(); }

  int lane() const { return lane_; }
  std::string_view name() const { return name_; }

  PromptWaits::Operation& prompt() { return prompt_; }

  void finish_one(std::exception_ptr error) {
    if (error) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(error);
    }
    remaining_.fetch_sub(1, std::memory_order_release);
  }

 private:
  ProgressEngine& engine_;
  std::atomic<std::size_t> remaining_;
  const int lane_;
  const std::string_view name_;
  PromptWaits::Operation prompt_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

void ProgressEngine::stop() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  const std::scoped_lock lock(drive_mutex_, inbox_mutex_);
  inbox_.clear();
  lanes_.clear();
  pending_ = 0;
}

Work ProgressEngine::submit(std::vector<Queued> operations) {
  if (operations.empty()) return {};
  std::shared_ptr<State> state;
  bool wake = true;
  {
    const std::lock_guard lock(inbox_mutex_);
    state =
        std::make_shared<State>(*this, operations.size(), operations.front(), waits_of(operations));
    wake = !naps_ || !state->prompt().expects_wait();
    pending_ += operations.size();
    for (Queued& operation : operations) inbox_.push_back({std::move(operation), state});
    if (!thread_.joinable()) thread_ = start_thread("messages", [this] { run(); });
  }
  try_advance();  // sends its messages now
  if (wake && !state->done()) wake_.notify_one();
  state->prompt().submitted(now_ns());
  return Work(std::move(state));
}

// Only short collectives are counted: others are worth a thread, and the state of an engine must
// not grow with the peers it has met.
PromptWaits* ProgressEngine::waits_of(const std::vector<Queued>& operations) {
  const Queued& only = operations.front();
  if (operations.size() > 1 || only.key.peer >= 0 || only.bytes > kShortBytes) return nullptr;
  return &prompt_waits_[{only.key.lane, only.name}];
}

void ProgressEngine::prepare_thread(std::function<void()> prepare) {
  const std::scoped_lock lock(drive_mutex_, inbox_mutex_);  // the engine's thread is not advancing
  prepare_ = std::move(prepare);
  unprepared_ = true;
}

void ProgressEngine::drain() {
  while (!drain(1.0)) {
  }
}

bool ProgressEngine::drain(double seconds) {
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (pending_ > 0) {
    if (now_ns() > until) return false;
    usleep(1000);
  }
  return true;
}

// The caller's thread advances the tasks itself, so no thread has to be woken when they are done.
void ProgressEngine::wait(State& state, std::int64_t begin) {
  ++waiting_hosts_;
  Backoff backoff(Backoff::kWhileWaiting);
  while (!state.done()) {
    const std::int64_t poll = now_ns();
    const bool moved = try_advance();
    if (!state.done()) backoff.step(moved, poll);
  }
  bool wake = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    --waiting_hosts_;
    wake = wanted();
  }
  if (wake) wake_.notify_one();
  recorder_.add_exposed(state.lane(), state.name(), begin, now_ns());
}

bool ProgressEngine::try_advance() {
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  return lock && advance_all();
}

bool ProgressEngine::advance_all() {
  {
    const std::lock_guard lock(inbox_mutex_);
    for (Entry& entry : inbox_) lanes_[entry.operation.key].push_back(std::move(entry));
    inbox_.clear();
  }
  // Erases empty lanes, so that the cost of a poll depends on the operations in flight and not on
  // how many peers this rank has ever had.
  bool moved = false;
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    moved |= advance_lane(lane->second);
    lane = lane->second.empty() ? lanes_.erase(lane) : std::next(lane);
  }
  return moved;
}

std::size_t ProgressEngine::lanes() {
  const std::lock_guard lock(drive_mutex_);
  return lanes_.size();
}

bool ProgressEngine::advance_lane(std::deque<Entry>& lane) {
  bool moved = false;
  while (!lane.empty()) {
    Entry& head = lane.front();
    Task::Step step = Task::Step::kIdle;
    std::exception_ptr error;
    try {
      step = advance_head(head);
    } catch (...) {
      error = std::current_exception();
      step = Task::Step::kDone;
    }
    if (step == Task::Step::kIdle) return moved;
    moved = true;
    if (step == Task::Step::kDone) {
      Entry finished = std::move(head);
      lane.pop_front();
      finish(finished, std::move(error));
    }
  }
  return moved;
}

Task::Step ProgressEngine::advance_head(Entry& head) {
  const Queued& operation = head.operation;
  if (head.id == 0) {
    if (!operation.task->may_begin()) return Task::Step::kIdle;
    head.id = recorder_.begin(operation.key.lane, operation.key.peer, operation.key.sends,
                              operation.name, operation.bytes);
  }
  return operation.task->advance();
}

void ProgressEngine::finish(Entry& entry, std::exception_ptr error) {
  recorder_.end(entry.id);
  entry.operation.task.reset();  // releases its tensors before it counts as done
  --pending_;
  entry.state->finish_one(std::move(error));
}

void ProgressEngine::run() {
  std::unique_lock lock(inbox_mutex_);
  while (!stopping_) {
    sleep(lock);
    const std::function<void()> prepare = std::exchange(prepare_, nullptr);
    unprepared_ = false;
    lock.unlock();
    if (prepare) prepare();
    poll();
    lock.lock();
  }
}

void ProgressEngine::sleep(std::unique_lock<std::mutex>& inbox) {
  while (!stopping_ && !wanted()) {
    naps_ = hosts_drive_.exchange(false);
    if (naps_)
      wake_.wait_for(inbox, kNap);
    else
      wake_.wait(inbox);
  }
}

void ProgressEngine::poll() {
  Backoff backoff(Backoff::kBesideComputation);
  while (!stopping_ && wanted()) {
    const std::int64_t begin = now_ns();
    bool moved = false;
    {
      const std::unique_lock lock(drive_mutex_, std::try_to_lock);
      if (unprepared_) return;  // run() will call prepare_
      moved = lock && advance_all();
    }
    backoff.step(moved, begin);
  }
}

}  // namespace trireme
