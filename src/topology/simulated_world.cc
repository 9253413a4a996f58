#include "trireme/topology/simulated_world.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce.h"

#include "fair_share.h"

namespace trireme {
namespace {

constexpr std::size_t kAddresses = std::size_t{1} << 40;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kNamedWaits = 4;  // in a message

// Times that differ by less are the same: they differ by the order in which they were added up.
double rounding_of(double time) {
  return 1e-12 * std::max(time, 1e-6);
}

// Addresses of memory that is not there.
class NoMemory {
 public:
  NoMemory()
      : base_(mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {
    TRIREME_CHECK(base_ != MAP_FAILED, "no addresses for a simulated world");
  }
  ~NoMemory() { munmap(base_, kAddresses); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
};

struct Message {
  int from, to;
  std::size_t bytes;
  const std::byte* data = nullptr;
  std::byte* target = nullptr;
  // Contents of a message that left its sender before it was received.
  std::vector<std::byte> carried{};
  double sent = -1.0, received = -1.0;              // when it was posted; negative: not yet
  std::size_t send_number = 0, receive_number = 0;  // among the messages of each end
  bool is_eager = false;
  bool has_arrived = false;
  Flow flow{};
};

}  // namespace

class SimulatedWorld::Impl {
 public:
  Impl(const Network& network, Options options)
      : network_(network),
        options_(std::move(options)),
        share_(capacities(network)),
        random_(options_.seed.value_or(0)) {}

  Result run(int ranks, const MakeTask& make);
  const NoMemory& no_memory() const { return no_memory_; }

 private:
  class Endpoint;

  struct Rank {
    std::unique_ptr<Task> task;
    double clock = 0.0;  // when it is free again
    int pending = 0;     // messages that it has posted and that are not done
    // Whether each of its messages from number `first_open` on is done.
    std::deque<bool> finished{};
    std::size_t first_open = 0;
    bool wants_each = false;  // its task waits for some of its messages, not only for all
    bool is_done = false;
    std::uint64_t messages = 0, bytes = 0;
    std::size_t workspace = 0, most_workspace = 0;
  };
  enum class Kind { kWake, kStart };  // a rank; a message
  struct Event {
    double time;
    std::uint64_t order;  // among events at the same time
    Kind kind;
    int rank = -1;
    Message* message = nullptr;
    bool operator>(const Event& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };
  using Channel = std::deque<Message*>;  // only sent, or only awaited

  static std::vector<double> capacities(const Network& network) {
    std::vector<double> result;
    for (const Link& link : network.links()) {
      TRIREME_CHECK(link.bytes_per_second > 0.0, link.name + " carries nothing");
      result.push_back(link.bytes_per_second);
    }
    return result;
  }

  void schedule(double time, Kind kind, int rank, Message* message = nullptr) {
    const std::uint64_t order = options_.seed ? random_() : next_order_++;
    events_.push({time, order, kind, rank, message});
  }
  double latency() {
    if (!options_.seed) return options_.costs.latency;
    // A microsecond more draws an order also where nothing takes time.
    const double draw = std::uniform_real_distribution<double>(0.0, 1.0)(random_);
    return (0.5 + 2.0 * draw) * options_.costs.latency + 1e-6 * draw;
  }
  std::uint64_t channel_key(int from, int to) const {
    return static_cast<std::uint64_t>(from) * ranks_.size() + static_cast<std::uint64_t>(to);
  }
  Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }

  void post_send(int from, int to, const std::byte* data, std::size_t bytes);
  void post_receive(int to, int from, std::byte* target, std::size_t bytes);
  Message* match(int from, int to, bool sends, std::size_t bytes);
  void start(Message& message);
  void arrive(Message& message);
  void finish(int number, std::size_t message);
  void deliver(Message& message);
  void wake(int number);
  void pass_time(double time);
  void settle_flows();
  [[noreturn]] void report_standstill() const;

  const Network& network_;
  Options options_;
  FairShare share_;
  std::mt19937_64 random_;
  NoMemory no_memory_;

  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::unordered_map<Message*, std::unique_ptr<Message>> messages_;
  std::vector<Flow*> flows_;
  std::vector<Message*> under_way_;  // as flows_
  bool flows_changed_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
  double now_ = 0.0;
  int done_ = 0;
  std::vector<double> link_bytes_;
};

// A rank's end of its operation.
class SimulatedWorld::Impl::Endpoint final : public Transport {
 public:
  Endpoint(Impl& world, int rank, int size)
      : Transport(rank, size, world.options_.segment_bytes, world.options_.blocks), world_(world) {}

  void send(const std::byte* data, std::size_t bytes, int peer) override {
    if (bytes > 0) world_.post_send(rank(), peer, data, bytes);
  }
  void receive(std::byte* data, std::size_t bytes, int peer) override {
    if (bytes > 0) world_.post_receive(rank(), peer, data, bytes);
  }
  void signal(int to, int from) override {
    world_.post_receive(rank(), from, nullptr, 0);
    world_.post_send(rank(), to, nullptr, 0);
  }
  bool done() override { return self().pending == 0; }
  std::size_t posted() const override { return self().first_open + self().finished.size(); }
  bool done(std::size_t first, std::size_t last) override {
    Rank& own = self();
    own.wants_each = true;
    for (std::size_t i = std::max(first, own.first_open); i < last; ++i) {
      if (!own.finished[i - own.first_open]) return false;
    }
    return true;
  }

  Buffer workspace(std::size_t bytes) override {
    Rank& owner = self();
    owner.workspace += bytes;
    owner.most_workspace = std::max(owner.most_workspace, owner.workspace);
    std::byte* const memory =
        world_.options_.contents ? new std::byte[bytes] : world_.no_memory_.get();
    // A NaN shows where something is read before it is written.
    if (world_.options_.contents) std::memset(memory, 0xff, bytes);
    return {memory, [&owner, bytes, real = world_.options_.contents](std::byte* freed) {
              owner.workspace -= bytes;
              if (real) delete[] freed;
            }};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (world_.options_.contents) std::memcpy(to, from, bytes);
    self().clock += static_cast<double>(bytes) * world_.options_.costs.copied_byte;
  }
  void reduce(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
              DType out_type, std::byte* out, std::size_t count) override {
    if (world_.options_.contents) reduce_tree(op, source_type, sources, out_type, out, count);
    self().clock += static_cast<double>((sources.size() - 1) * count * size_of(source_type)) *
                    world_.options_.costs.reduced_byte;
  }

 private:
  Rank& self() const { return world_.rank(rank()); }

  Impl& world_;
};

// Returns the message that the other end has posted, if it has, or else a new one.
Message* SimulatedWorld::Impl::match(int from, int to, bool sends, std::size_t bytes) {
  Channel& waiting = channels_[channel_key(from, to)];
  if (!waiting.empty()) {
    Message* const first = waiting.front();
    const bool fits = sends ? first->sent < 0 : first->received < 0;
    if (fits) {
      waiting.pop_front();
      if (waiting.empty()) {
        channels_.erase(channel_key(from, to));
      }
      TRIREME_CHECK(first->bytes == bytes,
                    fmt::format("rank {} sends {} bytes where rank {} expects {}", from,
                                sends ? bytes : first->bytes, to, sends ? first->bytes : bytes));
      return first;
    }
  }
  auto message = std::make_unique<Message>(Message{.from = from, .to = to, .bytes = bytes});
  Message* const added = message.get();
  messages_.emplace(added, std::move(message));
  waiting.push_back(added);
  return added;
}

void SimulatedWorld::Impl::post_send(int from, int to, const std::byte* data, std::size_t bytes) {
  Rank& sender = rank(from);
  sender.clock += options_.costs.message;
  ++sender.messages;
  sender.bytes += bytes;
  Message* const message = match(from, to, true, bytes);
  message->sent = sender.clock;
  message->send_number = sender.first_open + sender.finished.size();
  message->data = data;
  message->is_eager = bytes <= options_.eager_bytes;
  sender.finished.push_back(message->is_eager);
  if (message->is_eager) {
    if (options_.contents) message->carried.assign(data, data + bytes);
    schedule(message->sent + latency(), Kind::kStart, -1, message);
    return;
  }
  ++sender.pending;
  if (message->received >= 0) {
    schedule(std::max(message->sent, message->received) + latency(), Kind::kStart, -1, message);
  }
}

void SimulatedWorld::Impl::post_receive(int to, int from, std::byte* target, std::size_t bytes) {
  Rank& receiver = rank(to);
  receiver.clock += options_.costs.message;
  ++receiver.pending;
  Message* const message = match(from, to, false, bytes);
  message->received = receiver.clock;
  message->target = target;
  message->receive_number = receiver.first_open + receiver.finished.size();
  receiver.finished.push_back(false);
  if (message->has_arrived) {
    deliver(*message);
  } else if (message->sent >= 0 && !message->is_eager) {
    schedule(std::max(message->sent, message->received) + latency(), Kind::kStart, -1, message);
  }
}

// The first byte is on its way.
void SimulatedWorld::Impl::start(Message& message) {
  if (message.bytes == 0) {
    arrive(message);
    return;
  }
  message.flow.remaining = static_cast<double>(message.bytes);
  network_.route(message.from, message.to, message.flow.links);
  TRIREME_CHECK(!message.flow.links.empty(),
                fmt::format("no link leads from rank {} to {}", message.from, message.to));
  for (const int link : message.flow.links) {
    link_bytes_[static_cast<std::size_t>(link)] += static_cast<double>(message.bytes);
  }
  flows_.push_back(&message.flow);
  under_way_.push_back(&message);
  flows_changed_ = true;
}

void SimulatedWorld::Impl::arrive(Message& message) {
  message.has_arrived = true;
  if (!message.is_eager) finish(message.from, message.send_number);
  if (message.received >= 0) deliver(message);
}

void SimulatedWorld::Impl::deliver(Message& message) {
  if (options_.contents && message.bytes > 0) {
    std::memcpy(message.target, message.is_eager ? message.carried.data() : message.data,
                message.bytes);
  }
  finish(message.to, message.receive_number);
  messages_.erase(&message);
}

// One of a rank's messages is done.
void SimulatedWorld::Impl::finish(int number, std::size_t message) {
  Rank& owner = rank(number);
  owner.finished[message - owner.first_open] = true;
  while (!owner.finished.empty() && owner.finished.front()) {
    owner.finished.pop_front();
    ++owner.first_open;
  }
  if (--owner.pending == 0 || owner.wants_each) {
    schedule(std::max(now_, owner.clock), Kind::kWake, number);
  }
}

void SimulatedWorld::Impl::wake(int number) {
  Rank& self = rank(number);
  if (self.is_done || (self.pending > 0 && !self.wants_each)) return;  // it was woken twice
  self.clock = std::max(self.clock, now_);
  while (self.pending == 0 || self.wants_each) {
    const Task::Step step = self.task->advance();
    if (step == Task::Step::kDone) {
      self.is_done = true;
      ++done_;
      return;
    }
    if (step == Task::Step::kMoved) continue;
    TRIREME_CHECK(self.pending > 0,
                  fmt::format("the task of rank {} waits for no message", number));
    return;
  }
}

// Lets the messages under way flow until `time`.
void SimulatedWorld::Impl::pass_time(double time) {
  for (Flow* flow : flows_) flow->remaining -= flow->rate * (time - now_);
  now_ = time;
}

// Takes out what has arrived.
void SimulatedWorld::Impl::settle_flows() {
  std::vector<Message*> arrived;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const double rest = rounding_of(now_) * flows_[i]->rate + 1e-6;  // a part of a byte
    if (flows_[i]->remaining <= rest) {
      arrived.push_back(under_way_[i]);
      continue;
    }
    flows_[kept] = flows_[i];
    under_way_[kept++] = under_way_[i];
  }
  flows_.resize(kept);
  under_way_.resize(kept);
  if (!arrived.empty()) flows_changed_ = true;
  for (Message* message : arrived) arrive(*message);
}

void SimulatedWorld::Impl::report_standstill() const {
  std::vector<std::string> waits;
  for (const auto& [key, channel] : channels_) {
    const Message& first = *channel.front();
    waits.push_back(
        first.sent >= 0
            ? fmt::format("rank {} sends {} bytes to {}, which does not receive them", first.from,
                          first.bytes, first.to)
            : fmt::format("rank {} waits for {} bytes from {}", first.to, first.bytes, first.from));
  }
  std::ranges::sort(waits);
  const std::size_t all = waits.size();
  if (all > kNamedWaits) waits.resize(kNamedWaits);
  throw InternalError(fmt::format("nothing moves any more: {}{}", fmt::join(waits, "; "),
                                  all > kNamedWaits ? "; ..." : ""));
}

SimulatedWorld::Result SimulatedWorld::Impl::run(int ranks, const MakeTask& make) {
  TRIREME_CHECK(ranks <= network_.ranks(),
                fmt::format("{} ranks in a network for {}", ranks, network_.ranks()));
  ranks_ = std::vector<Rank>(static_cast<std::size_t>(ranks));
  channels_.clear();
  flows_.clear();
  under_way_.clear();
  messages_.clear();
  events_ = {};
  now_ = 0.0;
  done_ = 0;
  link_bytes_.assign(network_.links().size(), 0.0);
  for (int number = 0; number < ranks; ++number) {
    rank(number).task = make(std::make_unique<Endpoint>(*this, number, ranks));
    schedule(0.0, Kind::kWake, number);
  }
  while (done_ < ranks) {
    if (flows_changed_) {
      share_.set_rates(flows_);
      flows_changed_ = false;
    }
    double next = events_.empty() ? kNever : events_.top().time;
    for (const Flow* flow : flows_) next = std::min(next, now_ + flow->remaining / flow->rate);
    if (next == kNever) report_standstill();
    pass_time(next);
    settle_flows();
    while (!events_.empty() && events_.top().time <= now_ + rounding_of(now_)) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == Kind::kWake) {
        wake(event.rank);
      } else {
        start(*event.message);
      }
    }
  }
  Result result;
  for (Rank& each : ranks_) {
    each.task.reset();
    result.seconds = std::max(result.seconds, each.clock);
    result.messages += each.messages;
    result.bytes += each.bytes;
    result.worst_messages = std::max(result.worst_messages, each.messages);
    result.worst_bytes = std::max(result.worst_bytes, each.bytes);
    result.worst_workspace = std::max(result.worst_workspace, each.most_workspace);
  }
  result.link_bytes = link_bytes_;
  return result;
}

SimulatedWorld::SimulatedWorld(const Network& network, Options options)
    : impl_(std::make_unique<Impl>(network, std::move(options))) {}

SimulatedWorld::~SimulatedWorld() = default;

SimulatedWorld::Result SimulatedWorld::run(int ranks, const MakeTask& make) {
  return impl_->run(ranks, make);
}

Tensor SimulatedWorld::tensor(std::int64_t elements, DType dtype) const {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  TRIREME_CHECK(bytes <= kAddresses, fmt::format("a tensor of {} bytes", bytes));
  return Tensor::wrap(impl_->no_memory().get(), {elements}, dtype);
}

}  // namespace trireme
