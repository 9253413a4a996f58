// The thread that advances communication while the host computes. It plays the part of streams on a
// GPU. There is one queue per lane; the head of every lane is in flight.
#pragma once

#include <atomic>
#include <compare>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/task.h"
#include "trireme/comm/work.h"

#include "comm/mpi/prompt_waits.h"

namespace trireme {

// Operations of one lane run one after another; lanes are independent of each other.
struct LaneKey {
  int lane = 0;        // Communicator::lane_id
  int peer = -1;       // world rank of a point-to-point partner
  bool sends = false;  // direction, where there is a peer
  auto operator<=>(const LaneKey&) const = default;
};

class ProgressEngine {
 public:
  struct Queued {
    LaneKey key;
    std::string_view name;  // a string literal
    std::size_t bytes;
    std::unique_ptr<Task> task;
  };

  explicit ProgressEngine(FlightRecorder& recorder) : recorder_(recorder) {}
  FlightRecorder& recorder() const { return recorder_; }
  ~ProgressEngine() { stop(); }
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // Thread-safe. Queues the operations and returns at once. The Work is done when all of them are.
  // The engine's thread goes on with them unless a host waits; 2 ms later than it could, at most,
  // where hosts have waited at once for the last operations of the kind. Works may be waited for
  // as long as the engine lives.
  // If tasks throw, wait_host rethrows the first exception.
  Work submit(std::vector<Queued> operations);

  // The engine's thread calls `prepare` before it next advances anything: for settings that belong
  // to a thread, such as its device. `prepare` must not throw.
  void prepare_thread(std::function<void()> prepare);

  // Ends the thread and drops operations that are still queued; their Work is never done. Call it
  // before MPI is finalized.
  void stop();

  // Blocks until the pending operations of all lanes are done, or until `seconds` have passed.
  // Returns whether they are done.
  bool drain(double seconds);
  void drain();  // the same, without a limit

  // Returns the number of lanes that the next poll will look at: those with operations in flight or
  // queued.
  std::size_t lanes();

 private:
  class State;
  struct Entry {
    Queued operation;
    std::shared_ptr<State> state;
    std::uint64_t id = 0;  // the recorder's id, once it is in flight
  };

  // Returns nullptr where the thread is always woken; needs inbox_mutex_.
  PromptWaits* waits_of(const std::vector<Queued>& operations);
  void wait(State& state, std::int64_t begin_ns);
  bool advance_all();  // true if anything moved; needs drive_mutex_
  bool advance_lane(std::deque<Entry>& lane);
  Task::Step advance_head(Entry& head);
  void finish(Entry& entry, std::exception_ptr error);
  bool try_advance();                               // advance_all, unless another thread is in it
  void run();                                       // body of the thread
  void sleep(std::unique_lock<std::mutex>& inbox);  // until it is wanted
  void poll();  // until nothing is pending, a host thread takes over, or prepare_ is set
  bool wanted() const { return pending_ > 0 && waiting_hosts_ == 0; }

  FlightRecorder& recorder_;
  std::atomic<std::size_t> pending_ = 0;
  std::atomic<int> waiting_hosts_ = 0;  // host threads that drive progress themselves
  std::atomic<bool> stopping_ = false;
  // A host has waited at once, as expected, since the thread looked last.
  std::atomic<bool> hosts_drive_ = false;

  std::mutex inbox_mutex_;  // guards all down to prepare_, and sleeping on wake_
  std::condition_variable wake_;
  std::deque<Entry> inbox_;
  std::map<std::pair<int, std::string_view>, PromptWaits> prompt_waits_;  // by lane and name
  // The thread sleeps for a nap at most, so submit may let it sleep.
  bool naps_ = false;
  std::jthread thread_;  // started with the first operation
  std::function<void()> prepare_;
  std::atomic<bool> unprepared_ = false;  // prepare_ must be called; set under both mutexes

  std::mutex drive_mutex_;  // guards lanes_ and the tasks in them
  std::map<LaneKey, std::deque<Entry>> lanes_;
};

}  // namespace trireme
