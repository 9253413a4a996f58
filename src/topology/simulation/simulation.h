// The events of a simulated world: tasks, their messages, and whatever else ranks do in virtual
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/topology/simulated_world.h"

#include "topology/simulation/fair_share.h"

namespace trireme {

class Simulation {
 public:
  // A task of a rank. It must stay in place until it has ended.
  struct Operation {
    int rank = 0;  // in the world
    // Messages from one rank to another are matched in the order in which they are posted on a
    // channel.
    std::uint32_t channel = 0;
    std::unique_ptr<Task> task{};
    std::function<void()> ended{};  // may destroy the operation

    int pending = 0;  // messages that it has posted and that are not done
    // Whether each of its messages from number `first_open` on is done.
    std::deque<bool> finished{};
    std::size_t first_open = 0;
    bool wants_each = false;  // its task waits for some of its messages, not only for all
    bool is_scheduled = false;
    bool is_advancing = false;
    bool has_news = false;  // a message was done meanwhile
  };
  // Something that waits for a time.
  class Sleeper {
   public:
    virtual ~Sleeper() = default;
    virtual void wake() = 0;
  };

  // `no_memory` is what workspace() returns in a world without contents.
  Simulation(const Network& network, const SimulatedWorld::Options& options, int ranks,
             std::byte* no_memory);
  ~Simulation();

  // Makes the transport of an operation. `members` lists the world ranks of its group, or is null
  // for the whole world; `rank` counts in the group. `worthwhile_bytes` and `blocks` as in
  // Transport. The operation and `members` must outlive the transport.
  TransportPtr transport(Operation& operation, int rank, const std::vector<int>* members,
                         std::size_t worthwhile_bytes, std::shared_ptr<const RankBlocks> blocks);
  // Advances the task as soon as its rank is free, or later if the seed draws that.
  void start(Operation& operation);
  // Calls wake() in so many seconds, or later if the seed draws that.
  void wake_in(double seconds, Sleeper& sleeper);
  // The same, as soon as the rank is free.
  void wake_when_free(int rank, Sleeper& sleeper);

  // Lets time pass until the next event. Returns false if there is none. What a task or a sleeper
  // throws leaves by here.
  bool step();
  double now() const { return now_; }
  // Says which messages wait for the other end.
  std::string waits() const;
  SimulatedWorld::Result result() const;

 private:
  class Endpoint;

  struct Message {
    int from = 0, to = 0;  // ranks
    std::size_t bytes = 0;
    std::uint64_t channel = 0;
    Operation* sender = nullptr;
    Operation* receiver = nullptr;
    const std::byte* data = nullptr;
    std::byte* target = nullptr;
    // Contents that have left their sender before they arrive.
    std::vector<std::byte> carried{};
    bool is_carried = false;
    double sent = -1.0, received = -1.0;              // when it was posted; negative: not yet
    std::size_t send_number = 0, receive_number = 0;  // among the messages of each operation
    bool is_eager = false;
    bool has_arrived = false;
    Message* next = nullptr;  // in its channel
  };
  // The messages between two ranks that are only sent, or only awaited.
  struct Channel {
    Message* first = nullptr;
    Message* last = nullptr;
  };
  struct Rank {
    double clock = 0.0;  // when it is free again
    std::uint64_t messages = 0, bytes = 0;
    std::size_t workspace = 0, most_workspace = 0;
  };
  enum class Kind { kAdvance, kStart, kWake };
  struct Event {
    double time;
    std::uint64_t order;  // among events at the same time
    Kind kind;
    void* what;  // an Operation, a Message, a Sleeper
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void schedule(double time, Kind kind, void* what);
  double draw();  // from 0 to 1
  bool draws_yes();
  double slowness();
  double latency(const Message& message);
  double delay();
  Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }

  void post_send(Operation& sender, int to, const std::byte* data, std::size_t bytes);
  void post_receive(Operation& receiver, int from, std::byte* target, std::size_t bytes);
  Message& match(std::uint32_t channel, int from, int to, bool sends, std::size_t bytes);
  void begin_flow(Message& message);
  void arrive(Message& message);
  void deliver(Message& message);
  void finish_message(Operation& operation, std::size_t number);
  void schedule_advance(Operation& operation, double time);
  void advance(Operation& operation);
  void poll();

  const Network& network_;
  SimulatedWorld::Options options_;
  std::byte* no_memory_;
  FairShare share_;
  std::mt19937_64 random_;

  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::deque<Message> messages_;  // in use or free
  std::vector<Message*> free_messages_;
  std::vector<int> route_;  // of the message that sets out
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
  std::vector<Operation*> to_poll_;
  double now_ = 0.0;
  std::vector<double> link_bytes_;
};

}  // namespace trireme
