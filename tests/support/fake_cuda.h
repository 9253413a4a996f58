// A CUDA runtime for tests without a GPU. Device memory is host memory; work queued on a stream
// runs only when something waits for it, or at random moments chosen by a seed; the n-th call can
// be made to fail. It records faults that a real device would commit silently (work on freed
// memory).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trireme/tensor/cuda.h"

namespace trireme::testing {

class FakeCuda : public cuda::Runtime {
 public:
  // With seed 0 streams move only when something waits for them; with any other seed also at random
  // moments.
  explicit FakeCuda(std::uint64_t seed = 0, std::size_t memory = std::size_t{1} << 30);
  ~FakeCuda() override;

  // Makes the n-th call from now (1: the next) that can fail throw CudaError; 0: none.
  void fail_call(std::size_t n);
  // Makes every such call fail from now on, as after an illegal access.
  void fail_all(bool fail);
  std::size_t calls() const { return calls_; }  // calls so far that could fail

  // Queues the work of a kernel.
  void enqueue(const Stream& stream, std::function<void()> work);
  // The same for work that decides when it ends, like a kernel that waits for others. `start` is
  // called each time that the work is queued: once, or at every launch of a graph. It returns the
  // function to poll until it returns true. Later work on the stream waits until then.
  void enqueue_until(const Stream& stream, std::function<std::function<bool()>()> start);
  void run_all();       // runs all queued work; waits for work that other threads end
  virtual void move();  // runs a little queued work if a seed was given
  void step();          // runs the next operation of each stream that can move
  // For work on device memory: records a fault if the memory was freed.
  void check_access(const void* address, std::size_t bytes, const char* what);

  // The number of objects that are alive now. Memory that queued work still uses counts as alive
  // after it is freed.
  std::size_t device_blocks() const { return device_.size(); }
  std::size_t pinned_blocks() const { return pinned_.size(); }
  // Whether memory of the device is shareable (cuda_shareable.h), so that a library may open it.
  bool is_shareable(const void* address, std::size_t bytes) const;
  std::size_t streams() const { return streams_.size() - destroyed_; }
  std::size_t events() const { return events_.size(); }
  bool captures(cuda::StreamHandle stream);  // whether work that is queued there goes to a graph
  std::size_t graphs() const { return graphs_.size(); }
  std::size_t launches() const { return launches_; }      // of graphs
  std::size_t host_waits() const { return host_waits_; }  // calls that made the host wait
  std::size_t published() const { return published_; }    // calls of publish
  const std::vector<std::string>& faults() const { return faults_; }

  cuda::Devices devices() override { return {device_count, device_count == 0 ? "none" : ""}; }
  int driver_version() override { return 13000; }
  int runtime_version() override { return 13000; }
  cuda::DeviceProperties properties(int device) override;
  bool can_access_peer(int, int) override { return true; }
  cuda::MemoryInfo memory_info(int device) override;
  void set_device(int device) override;

  void* allocate(std::size_t bytes, cuda::StreamHandle stream) override;
  void free(void* memory, cuda::StreamHandle stream) noexcept override;
  void release_freed(int device) noexcept override;
  void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* memory) noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, cuda::CopyDirection direction,
            cuda::StreamHandle stream) override;
  void fill(void* memory, int byte, std::size_t bytes, cuda::StreamHandle stream) override;
  void publish(std::int64_t* to, const std::int64_t* from, cuda::StreamHandle stream) override;
  cuda::StreamHandle create_stream(int device, bool urgent) override;
  void destroy_stream(cuda::StreamHandle stream) noexcept override;
  void synchronize(cuda::StreamHandle stream) override;
  void wait(cuda::StreamHandle stream, cuda::EventHandle event) override;
  cuda::EventHandle create_event(int device) override;
  cuda::EventHandle create_timed_event(int device) override;
  double seconds_between(cuda::EventHandle begin, cuda::EventHandle end) override;
  void destroy_event(cuda::EventHandle event) noexcept override;
  void record(cuda::EventHandle event, cuda::StreamHandle stream) override;
  bool done(cuda::EventHandle event) override;
  void synchronize_event(cuda::EventHandle event) override;
  void begin_capture(cuda::StreamHandle stream) override;
  Graph end_capture(cuda::StreamHandle stream) override;
  void launch(cuda::GraphHandle graph, cuda::StreamHandle stream) override;
  void destroy_graph(cuda::GraphHandle graph) noexcept override;

  // The device's clock, in seconds. A timed event records it when a stream reaches the event. It
  // stands still unless a test, or work that a test queues, moves it.
  virtual double device_seconds() { return clock; }
  std::atomic<double> clock = 0.0;

  int device_count = 1;
  // How long the host waits before it reports a deadlock, while only other threads or ranks can
  // move a stream and none does.
  double deadlock_seconds = 30.0;
  std::string uuid = "fake";  // the beginning of the GPUs' unique ids; a number follows

 private:
  // Operations of a graph, as indices into its nodes.
  using Places = std::set<std::size_t>;
  struct EventState {
    int recorded = 0, finished = 0;  // how many times
    int capture = 0;                 // the number of the capture that recorded it last; 0: none
    Places marks;                    // the operations that it stands for in that capture
    bool timed = false;
    double seconds = 0.0;  // the device's clock when it last finished
  };
  struct Operation {
    std::function<void()> run = nullptr;                     // runs it; or, if empty:
    std::function<std::function<bool()>()> start = nullptr;  // makes `ended` when queued
    std::function<bool()> ended = nullptr;        // polled until it returns true; or, if empty:
    std::shared_ptr<EventState> event = nullptr;  // wait until it has finished `times` times
    int times = 0;
  };
  struct StreamState {
    std::deque<Operation> queue;
    bool destroyed = false;
    bool captured = false;  // queued work goes to the graph
    Places last;            // the operations that the stream's next one follows
  };
  struct Node {
    Operation operation;
    Places after;
  };
  using Nodes = std::vector<Node>;
  class Launch;  // a running graph
  struct Capture {
    int number = 0;  // 0: nothing is captured
    std::thread::id thread;
    StreamState* origin = nullptr;
    Nodes nodes;
  };
  using Memory = std::map<const std::byte*, std::vector<std::byte>>;

  void call(const char* name);
  // For a call that a capturing thread must not make.
  void call_outside_of_capture(const char* name);
  void push(cuda::StreamHandle stream, Operation operation);
  void check_joined() const;
  void drop_capture();
  void move_a_little();
  bool run_one(StreamState& stream);
  bool may_pass(const Operation& wait);
  bool others_can_move() const;  // whether other threads or ranks can move a stream of this one
  // The caller holds the lock. It is released while only another thread can move a stream.
  void run_until(const std::function<bool()>& reached, const std::string& what);
  StreamState& state(cuda::StreamHandle stream);
  static void* add(Memory& memory, std::size_t bytes);
  static bool inside(const Memory& memory, const void* address, std::size_t bytes);

  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  const bool eager_;
  const std::size_t memory_;
  std::size_t used_ = 0, fails_at_ = 0, destroyed_ = 0;
  std::atomic<std::size_t> calls_ = 0, host_waits_ = 0;
  bool fails_ = false;
  Memory device_, pinned_;
  std::set<const std::byte*> shareable_;  // blocks of device_ that no stream orders
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::map<void*, std::shared_ptr<EventState>> events_;
  std::map<void*, std::shared_ptr<const Nodes>> graphs_;
  Capture capture_;
  int captures_ = 0;
  std::size_t launches_ = 0, published_ = 0, moves_ = 0;
  std::vector<std::string> faults_;
};

}  // namespace trireme::testing
