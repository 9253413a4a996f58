#include "topology/simulation/simulation.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce.h"

namespace trireme {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kNamedWaits = 4;  // in a message
// A NaN of any type. It shows where something is read before it is written.
constexpr int kUnwritten = 0xff;

// Times that differ by less are the same: they differ by the order in which they were added up.
double rounding_of(double time) {
  return 1e-12 * std::max(time, 1e-6);
}

std::vector<double> capacities(const Network& network) {
  std::vector<double> result;
  for (const Link& link : network.links()) {
    TRIREME_CHECK(link.bytes_per_second > 0.0, link.name + " carries nothing");
    result.push_back(link.bytes_per_second);
  }
  return result;
}

}  // namespace

// A rank's end of an operation.
class Simulation::Endpoint final : public Transport {
 public:
  Endpoint(Simulation& world, Operation& operation, int rank, const std::vector<int>* members,
           std::size_t worthwhile_bytes, std::shared_ptr<const RankBlocks> blocks)
      : Transport(rank,
                  members == nullptr ? static_cast<int>(world.ranks_.size())
                                     : static_cast<int>(members->size()),
                  world.options_.segment_bytes, worthwhile_bytes, std::move(blocks)),
        world_(world),
        operation_(operation),
        members_(members) {}

  void send(const std::byte* data, std::size_t bytes, int peer) override {
    if (bytes > 0) world_.post_send(operation_, world_rank(peer), data, bytes);
  }
  void receive(std::byte* data, std::size_t bytes, int peer) override {
    if (bytes > 0) world_.post_receive(operation_, world_rank(peer), data, bytes);
  }
  void signal(int to, int from) override {
    world_.post_receive(operation_, world_rank(from), nullptr, 0);
    world_.post_send(operation_, world_rank(to), nullptr, 0);
  }
  bool done() override { return operation_.pending == 0; }
  std::size_t posted() const override { return operation_.first_open + operation_.finished.size(); }
  bool done(std::size_t first, std::size_t last) override {
    operation_.wants_each = true;
    for (std::size_t i = std::max(first, operation_.first_open); i < last; ++i) {
      if (!operation_.finished[i - operation_.first_open]) return false;
    }
    return true;
  }

  // A world in which a task ends early stands still.
  void abandon(std::unique_ptr<Task> /*task*/) override {}

  Buffer workspace(std::size_t bytes) override {
    Rank& owner = self();
    owner.workspace += bytes;
    owner.most_workspace = std::max(owner.most_workspace, owner.workspace);
    const bool real = world_.options_.contents;
    std::byte* const memory = real ? new std::byte[bytes] : world_.no_memory_;
    if (real) std::memset(memory, kUnwritten, bytes);
    return {memory, [&owner, bytes, real](std::byte* freed) {
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
  Rank& self() const { return world_.rank(operation_.rank); }
  int world_rank(int member) const {
    return members_ == nullptr ? member : members_->at(static_cast<std::size_t>(member));
  }

  Simulation& world_;
  Operation& operation_;
  const std::vector<int>* members_;
};

Simulation::Simulation(const Network& network, const SimulatedWorld::Options& options, int ranks,
                       std::byte* no_memory)
    : network_(network),
      options_(options),
      no_memory_(no_memory),
      share_(capacities(network)),
      random_(options.seed.value_or(0)),
      ranks_(static_cast<std::size_t>(ranks)),
      link_bytes_(network.links().size(), 0.0) {
  TRIREME_CHECK(ranks <= network.ranks(),
                fmt::format("{} ranks in a network for {}", ranks, network.ranks()));
}

Simulation::~Simulation() = default;

TransportPtr Simulation::transport(Operation& operation, int rank, const std::vector<int>* members,
                                   std::size_t worthwhile_bytes,
                                   std::shared_ptr<const RankBlocks> blocks) {
  return std::make_unique<Endpoint>(*this, operation, rank, members, worthwhile_bytes,
                                    std::move(blocks));
}

void Simulation::schedule(double time, Kind kind, void* what) {
  events_.push({time, options_.seed ? random_() : next_order_++, kind, what});
}

double Simulation::draw() {
  return std::uniform_real_distribution<double>(0.0, 1.0)(random_);
}

bool Simulation::draws_yes() {
  return options_.seed && (random_() & 1) != 0;
}

// Now and then something takes so long that much else happens before it.
double Simulation::slowness() {
  return random_() % 16 == 0 ? 30.0 : 1.0;
}

double Simulation::latency(const Message& message) {
  const double usual = network_.latency(message.from, message.to).value_or(options_.costs.latency);
  if (!options_.seed) return usual;
  // A microsecond more draws an order also where nothing takes time.
  return slowness() * ((0.5 + 2.0 * draw()) * usual + 1e-6 * draw());
}

// How much later than it could a rank does something.
double Simulation::delay() {
  return options_.seed ? slowness() * draw() * (options_.costs.latency + 1e-6) : 0.0;
}

void Simulation::start(Operation& operation) {
  schedule_advance(operation, std::max(now_, rank(operation.rank).clock) + delay());
}

void Simulation::wake_in(double seconds, Sleeper& sleeper) {
  schedule(now_ + seconds + delay(), Kind::kWake, &sleeper);
}

void Simulation::wake_when_free(int number, Sleeper& sleeper) {
  schedule(std::max(now_, rank(number).clock) + delay(), Kind::kWake, &sleeper);
}

// Returns the message that the other end has posted, if it has, or else a new one.
Simulation::Message& Simulation::match(std::uint32_t channel, int from, int to, bool sends,
                                       std::size_t bytes) {
  const std::uint64_t key = std::uint64_t{channel} << 40 | static_cast<std::uint64_t>(from) << 20 |
                            static_cast<std::uint64_t>(to);
  const auto [place, is_new] = channels_.try_emplace(key);
  Channel& waiting = place->second;
  if (!is_new && (sends ? waiting.first->sent : waiting.first->received) < 0) {
    Message& first = *waiting.first;
    waiting.first = first.next;
    if (waiting.first == nullptr) channels_.erase(place);
    TRIREME_CHECK(first.bytes == bytes,
                  fmt::format("rank {} sends {} bytes where rank {} expects {}", from,
                              sends ? bytes : first.bytes, to, sends ? first.bytes : bytes));
    return first;
  }
  if (free_messages_.empty()) {
    messages_.emplace_back();
    free_messages_.push_back(&messages_.back());
  }
  Message& added = *free_messages_.back();
  free_messages_.pop_back();
  added.from = from;
  added.to = to;
  added.bytes = bytes;
  added.channel = key;
  (is_new ? waiting.first : waiting.last->next) = &added;
  waiting.last = &added;
  return added;
}

void Simulation::post_send(Operation& sender, int to, const std::byte* data, std::size_t bytes) {
  Rank& owner = rank(sender.rank);
  owner.clock += options_.costs.message;
  ++owner.messages;
  owner.bytes += bytes;
  Message& message = match(sender.channel, sender.rank, to, true, bytes);
  message.sent = owner.clock;
  message.sender = &sender;
  message.send_number = sender.first_open + sender.finished.size();
  message.data = data;
  message.is_eager = bytes <= options_.eager_bytes;
  sender.finished.push_back(message.is_eager);
  // The transport may read the data at any time until the message has left.
  message.is_carried = options_.contents && bytes > 0 && (message.is_eager || draws_yes());
  if (message.is_carried) message.carried.assign(data, data + bytes);
  if (!message.is_eager) ++sender.pending;
  if (message.is_eager) {
    schedule(message.sent + latency(message), Kind::kStart, &message);
  } else if (message.received >= 0) {
    schedule(std::max(message.sent, message.received) + latency(message), Kind::kStart, &message);
  }
}

void Simulation::post_receive(Operation& receiver, int from, std::byte* target, std::size_t bytes) {
  Rank& owner = rank(receiver.rank);
  owner.clock += options_.costs.message;
  ++receiver.pending;
  Message& message = match(receiver.channel, from, receiver.rank, false, bytes);
  message.received = owner.clock;
  message.receiver = &receiver;
  message.receive_number = receiver.first_open + receiver.finished.size();
  receiver.finished.push_back(false);
  message.target = target;
  if (options_.contents && bytes > 0) std::memset(target, kUnwritten, bytes);
  if (message.has_arrived) {
    deliver(message);
  } else if (message.sent >= 0 && !message.is_eager) {
    schedule(std::max(message.sent, message.received) + latency(message), Kind::kStart, &message);
  }
}

// The first byte is on its way.
void Simulation::begin_flow(Message& message) {
  if (message.bytes == 0) {
    arrive(message);
    return;
  }
  route_.clear();
  network_.route(message.from, message.to, route_);
  TRIREME_CHECK(!route_.empty(),
                fmt::format("no link leads from rank {} to {}", message.from, message.to));
  for (const int link : route_) {
    link_bytes_[static_cast<std::size_t>(link)] += static_cast<double>(message.bytes);
  }
  share_.begin(now_, &message, route_, static_cast<double>(message.bytes),
               network_.highest_rate(message.from, message.to));
}

void Simulation::arrive(Message& message) {
  message.has_arrived = true;
  // Only an eager one may come before it is received.
  if (message.received >= 0) deliver(message);
}

void Simulation::deliver(Message& message) {
  if (options_.contents && message.bytes > 0) {
    std::memcpy(message.target, message.is_carried ? message.carried.data() : message.data,
                message.bytes);
  }
  if (!message.is_eager) finish_message(*message.sender, message.send_number);
  finish_message(*message.receiver, message.receive_number);
  message.sent = message.received = -1.0;
  message.has_arrived = false;
  message.next = nullptr;
  free_messages_.push_back(&message);
}

// Call it when one of an operation's messages is done.
void Simulation::finish_message(Operation& operation, std::size_t number) {
  --operation.pending;
  operation.finished[number - operation.first_open] = true;
  while (!operation.finished.empty() && operation.finished.front()) {
    operation.finished.pop_front();
    ++operation.first_open;
  }
  if (operation.is_advancing) {
    operation.has_news = true;
  } else if (operation.pending == 0 || operation.wants_each) {
    if (!operation.is_scheduled) {
      schedule_advance(operation, std::max(now_, rank(operation.rank).clock));
    }
  } else if (draws_yes()) {
    to_poll_.push_back(&operation);
  }
}

// An operation is scheduled once at most, so that it can end when it is advanced.
void Simulation::schedule_advance(Operation& operation, double time) {
  operation.is_scheduled = true;
  schedule(time, Kind::kAdvance, &operation);
}

// In production a task is asked at any time, whether or not its messages are done. So it is here,
// where a seed draws the order.
void Simulation::advance(Operation& operation) {
  Rank& owner = rank(operation.rank);
  operation.is_scheduled = false;
  if (owner.clock > now_ + rounding_of(now_)) {
    schedule_advance(operation, owner.clock);
    return;
  }
  owner.clock = std::max(owner.clock, now_);
  operation.is_advancing = true;
  while (operation.pending == 0 || operation.wants_each || draws_yes()) {
    operation.has_news = false;
    const Task::Step step = operation.task->advance();
    if (step == Task::Step::kDone) {
      TRIREME_CHECK(operation.pending == 0,
                    fmt::format("the task of rank {} ended before {} of its messages were done",
                                operation.rank, operation.pending));
      std::erase(to_poll_, &operation);
      operation.task.reset();
      const std::function<void()> ended = std::move(operation.ended);
      if (ended) ended();  // may destroy the operation
      return;
    }
    TRIREME_CHECK(step == Task::Step::kMoved || operation.pending > 0,
                  fmt::format("the task of rank {} waits for no message", operation.rank));
    if (step == Task::Step::kIdle && !operation.has_news) break;
  }
  operation.is_advancing = false;
}

void Simulation::poll() {
  while (!to_poll_.empty()) {
    Operation& operation = *to_poll_.back();
    to_poll_.pop_back();
    if (operation.is_scheduled) continue;
    if (operation.pending > 0 && rank(operation.rank).clock <= now_) advance(operation);
  }
}

bool Simulation::step() {
  share_.settle(now_);
  const double next = std::min(events_.empty() ? kNever : events_.top().time, share_.next_end());
  if (next == kNever) return false;
  now_ = next;
  for (void* message : share_.take_ended(now_, rounding_of(now_))) {
    arrive(*static_cast<Message*>(message));
  }
  poll();
  while (!events_.empty() && events_.top().time <= now_ + rounding_of(now_)) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case Kind::kAdvance:
        advance(*static_cast<Operation*>(event.what));
        break;
      case Kind::kStart:
        begin_flow(*static_cast<Message*>(event.what));
        break;
      case Kind::kWake:
        static_cast<Sleeper*>(event.what)->wake();
        break;
    }
    poll();
  }
  return true;
}

std::string Simulation::waits() const {
  std::vector<std::string> waits;
  for (const auto& [key, channel] : channels_) {
    const Message& first = *channel.first;
    waits.push_back(
        first.sent >= 0
            ? fmt::format("rank {} sends {} bytes to {}, which does not receive them", first.from,
                          first.bytes, first.to)
            : fmt::format("rank {} waits for {} bytes from {}", first.to, first.bytes, first.from));
  }
  std::ranges::sort(waits);
  const std::size_t all = waits.size();
  if (all > kNamedWaits) waits.resize(kNamedWaits);
  return fmt::format("{}{}", fmt::join(waits, "; "), all > kNamedWaits ? "; ..." : "");
}

SimulatedWorld::Result Simulation::result() const {
  SimulatedWorld::Result result;
  for (const Rank& each : ranks_) {
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

}  // namespace trireme
