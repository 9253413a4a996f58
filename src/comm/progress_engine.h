// The thread that carries communication on while the host computes: the part that streams play on
// a GPU. One queue per lane; the head of every lane is in flight.
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
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/work.h"

#include "task.h"

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

  // Queues the operations and returns at once; the Work is done when all of them are. Where tasks
  // throw, wait_host rethrows the first. Thread-safe.
  Work submit(std::vector<Queued> operations);

  // The engine's thread calls `prepare` before it next carries anything on: for what belongs to a
  // thread, such as its device. Throws nothing.
  void prepare_thread(std::function<void()> prepare);

  // Ends the thread and drops what is still queued; it stays undone. Before MPI is finalized.
  void stop();

  // Blocks until pending operations of all lanes are done, or `seconds` have passed; true if done.
  bool drain(double seconds);
  void drain();  // the same, however long it takes

  // Lanes that the next poll will look at: those with operations under way or waiting behind them.
  std::size_t lanes();

 private:
  class State;
  struct Entry {
    Queued operation;
    std::shared_ptr<State> state;
    std::uint64_t id = 0;  // the recorder's, once it is in flight
  };

  void wait(State& state);
  bool advance_all();  // true when anything moved; drive_mutex_ is held
  bool advance_lane(std::deque<Entry>& lane);
  Task::Step advance_head(Entry& head);
  void finish(Entry& entry, std::exception_ptr error);
  bool try_advance();  // advance_all unless another thread is at it
  void run();          // the thread
  void poll();         // until nothing is pending, a host thread takes over or prepare_ is set
  bool wanted() const { return pending_ > 0 && waiting_hosts_ == 0; }

  FlightRecorder& recorder_;
  std::atomic<std::size_t> pending_ = 0;
  std::atomic<int> waiting_hosts_ = 0;  // host threads that drive progress themselves
  std::atomic<bool> stopping_ = false;

  std::mutex inbox_mutex_;  // guards inbox_, thread_ and prepare_, and sleeping on wake_
  std::condition_variable wake_;
  std::deque<Entry> inbox_;
  std::thread thread_;  // started with the first operation
  std::function<void()> prepare_;
  std::atomic<bool> unprepared_ = false;  // prepare_ is to be called; set under both mutexes

  std::mutex drive_mutex_;  // guards lanes_ and the tasks in them
  std::map<LaneKey, std::deque<Entry>> lanes_;
};

}  // namespace trireme
