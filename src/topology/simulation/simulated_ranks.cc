#include "trireme/topology/simulated_ranks.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/caught.h"
#include "trireme/base/error.h"
#include "trireme/comm/checked_arguments.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/reduce.h"

#include "topology/simulation/fiber.h"
#include "topology/simulation/simulation.h"

namespace trireme {
namespace {

constexpr std::size_t kNamedRanks = 8;  // in a message
// What a look at an operation in flight takes. Without it, a loop that only looks would never end.
constexpr double kLookSeconds = 1e-7;

// Thrown in a rank that is unwound.
struct GivenUp {};

thread_local int running_rank = -1;

// The members of a communicator, and its plan where no planner decides.
struct Group {
  int lane;
  GroupLabel label;
  std::vector<int> members;
  std::shared_ptr<const CommunicatorPlan> plan;
};

struct LaneKey {
  int lane = 0;
  int peer = -1;
  bool sends = false;
  auto operator<=>(const LaneKey&) const = default;
};

class Rank;

// What all ranks share.
struct World {
  World(const Network& network, int ranks, const SimulatedRanksOptions& given)
      : options(given), size(ranks), simulation(network, given.world, ranks, nullptr) {}

  // The `earlier`-th group of that name and those ranks.
  const Group& group(const GroupLabel& label, const std::vector<int>& ranks, int earlier) {
    const auto [place, is_new] = numbers.try_emplace({label.name, ranks, earlier}, groups.size());
    if (is_new) {
      std::vector<int> nodes;
      for (const int rank : ranks) nodes.push_back(rank / options.ranks_of_node);
      auto blocks = std::make_shared<RankBlocks>(static_cast<int>(ranks.size()),
                                                 std::vector<std::vector<int>>{nodes});
      groups.push_back({.lane = static_cast<int>(groups.size()),
                        .label = label,
                        .members = ranks,
                        .plan = std::make_shared<CommunicatorPlan>(CommunicatorPlan{
                            .algorithms = options.algorithms, .blocks = std::move(blocks)})});
    }
    return groups[place->second];
  }

  const SimulatedRanksOptions& options;
  int size;
  Simulation simulation;
  std::deque<Group> groups;  // by lane
  std::map<std::tuple<std::string, std::vector<int>, int>, std::size_t> numbers;
  bool gives_up = false;
  // A rank has thrown while it had operations in flight, whose memory is gone.
  bool must_stop = false;
  int running = 0;            // ranks
  std::size_t in_flight = 0;  // operations of all ranks
};

// Whether a call by a rank that is unwound should do nothing instead of throwing.
bool unwinds(const World& world) {
  if (!world.gives_up) return false;
  if (std::uncaught_exceptions() == 0) throw GivenUp();
  return true;
}

// One call: an operation, or the transfers of an exchange.
class CallState final : public Work::State {
 public:
  CallState(Rank& rank, std::size_t operations, int lane, std::string_view name)
      : rank_(rank), remaining_(operations), lane_(lane), name_(name) {}

  bool done() override;
  void wait_host() override;
  void wait_on(const Stream& /*stream*/) override { wait_host(); }

  bool is_done() const { return remaining_ == 0; }
  void finish_one() { --remaining_; }

 private:
  Rank& rank_;
  std::size_t remaining_;
  int lane_;
  std::string_view name_;
};

class Rank final : public SimulatedRank, public Simulation::Sleeper {
 public:
  Rank(World& world, int number, const std::function<void(SimulatedRank&)>& body);

  Communicator& world() override { return *world_communicator_; }
  int rank() const override { return number_; }
  int size() const override { return world_.size; }
  int node() const override { return number_ / world_.options.ranks_of_node; }
  int nodes() const override {
    return (world_.size + world_.options.ranks_of_node - 1) / world_.options.ranks_of_node;
  }
  int local_rank() const override { return number_ % world_.options.ranks_of_node; }
  int local_size() const override {
    const int first = number_ - local_rank();
    return std::min(world_.options.ranks_of_node, world_.size - first);
  }
  const std::string& host() const override { return host_; }
  FlightRecorder& recorder() override { return recorder_; }
  std::unique_ptr<Communicator> group(const GroupLabel& label,
                                      const std::vector<int>& ranks) override;
  std::unique_ptr<Communicator> host_group(const GroupLabel& label,
                                           const std::vector<int>& ranks) override {
    return group(label, ranks);
  }
  std::string why_no_capture() const override { return "a simulated rank has no GPU"; }
  std::unique_ptr<CapturedCommunication> capture(const Stream& /*stream*/,
                                                 const std::int64_t* /*number*/) override {
    throw InternalError(why_no_capture());
  }
  double now() const override { return world_.simulation.now(); }
  void compute(double seconds) override {
    if (unwinds(world_)) return;
    world_.simulation.wake_in(seconds, *this);
    suspend();
  }

  struct Queued {
    LaneKey key;
    std::string_view name;  // a string literal
    std::size_t bytes;
    std::unique_ptr<Simulation::Operation> operation;
  };
  // Makes an operation whose task `make` makes for a transport among the group.
  template <class Make>
  std::unique_ptr<Simulation::Operation> operation(const Group& group, int rank,
                                                   const CommunicatorPlan& plan, bool is_transfer,
                                                   const Make& make) {
    auto made = std::make_unique<Simulation::Operation>();
    made->rank = number_;
    made->channel = 2 * static_cast<std::uint32_t>(group.lane) + (is_transfer ? 1 : 0);
    made->task = make(world_.simulation.transport(*made, rank, &group.members,
                                                  plan.worthwhile_bytes, plan.blocks));
    return made;
  }
  Work submit(std::vector<Queued> operations);
  void wait(CallState& state, int lane, std::string_view name);

  void wake() override;
  void unwind();
  bool ended() const { return fiber_.ended(); }
  const std::exception_ptr& fault() const { return fault_; }
  std::size_t stack_used() const { return fiber_.stack_used(); }
  std::string doing() const;  // "waits in all_reduce 3 of data"

 private:
  struct Entry {
    Queued queued;
    std::shared_ptr<CallState> state;
    std::uint64_t id = 0;  // the recorder's
  };

  void run(const std::function<void(SimulatedRank&)>& body);
  void begin(const LaneKey& key);
  void finish(const LaneKey& key);
  void suspend();

  World& world_;
  int number_;
  std::string host_;
  FlightRecorder recorder_;
  std::map<std::pair<std::string, std::vector<int>>, int> groups_made_;
  std::unique_ptr<Communicator> world_communicator_;
  std::map<LaneKey, std::deque<Entry>> lanes_;  // the first of each is in flight
  const CallState* awaited_ = nullptr;
  std::exception_ptr fault_;
  Fiber fiber_;
};

class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(Rank& rank, const Group& group)
      : rank_(rank), group_(group), plan_(group.plan) {
    const auto own = std::ranges::find(group.members, rank.rank());
    TRIREME_CHECK(own != group.members.end(),
                  fmt::format("rank {} is not in the group {}", rank.rank(), group.label.name));
    place_ = static_cast<int>(own - group.members.begin());
  }

  int rank() const override { return place_; }
  int size() const override { return static_cast<int>(group_.members.size()); }
  const GroupLabel& label() const override { return group_.label; }
  int world_rank(int member) const override {
    return group_.members.at(static_cast<std::size_t>(member));
  }
  int lane_id() const override { return group_.lane; }
  bool fixes_order_of_sums(DeviceKind /*device*/) const override {
    return plan_->algorithms.keeps_order();
  }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) override {
    check_reducible(data.dtype());
    return start(ready, Collective::kAllReduce, data.bytes(), {.output = data, .op = op});
  }
  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) override {
    check_reducible(input.dtype());
    check_parts(*this, "reduce_scatter", input, output);
    return start(ready, Collective::kReduceScatter, input.bytes(),
                 {.input = input, .output = output, .op = op});
  }
  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    check_parts(*this, "all_gather", output, input);
    return start(ready, Collective::kAllGather, output.bytes(), {.input = input, .output = output});
  }
  Work broadcast(const Stream& ready, Tensor data, int root) override {
    check_member(*this, root);
    return start(ready, Collective::kBroadcast, data.bytes(), {.output = data, .root = root});
  }
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    check_all_to_all(*this, input, output);
    return start(ready, Collective::kAllToAll, input.bytes(), {.input = input, .output = output});
  }
  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    ready.synchronize();
    std::vector<Rank::Queued> operations;
    for (Transfer& transfer : transfers) {
      check_member(*this, transfer.peer);
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      const std::size_t bytes = transfer.tensor.bytes();
      operations.push_back(
          {.key = {group_.lane, world_rank(transfer.peer), sends},
           .name = sends ? "send" : "receive",
           .bytes = bytes,
           .operation = rank_.operation(group_, place_, *plan_, true, [&](TransportPtr transport) {
             return make_transfer(std::move(transport), std::move(transfer));
           })});
    }
    return rank_.submit(std::move(operations));
  }
  Work barrier() override {
    return submit("barrier", 0,
                  [](TransportPtr transport) { return make_barrier(std::move(transport)); });
  }
  void follow(CommunicatorPlan plan) {
    plan_ = std::make_shared<CommunicatorPlan>(std::move(plan));
  }
  const void* native_mpi() const override {
    throw InternalError("communicator " + name() + " is simulated: it has no MPI_Comm");
  }

 private:
  Work start(const Stream& ready, Collective collective, std::size_t bytes, Operands operands) {
    ready.synchronize();
    const Algorithm algorithm = plan_->algorithms.choose(collective, bytes, size());
    return submit(name_of(collective), bytes, [&](TransportPtr transport) {
      return make_collective(collective, algorithm, std::move(transport), std::move(operands));
    });
  }
  template <class Make>
  Work submit(std::string_view name, std::size_t bytes, const Make& make) {
    std::vector<Rank::Queued> operations;
    operations.push_back({.key = {.lane = group_.lane},
                          .name = name,
                          .bytes = bytes,
                          .operation = rank_.operation(group_, place_, *plan_, false, make)});
    return rank_.submit(std::move(operations));
  }

  Rank& rank_;
  const Group& group_;
  std::shared_ptr<const CommunicatorPlan> plan_;
  int place_;
};

bool CallState::done() {
  if (!is_done()) rank_.compute(kLookSeconds);
  return is_done();
}

void CallState::wait_host() {
  rank_.wait(*this, lane_, name_);
}

Rank::Rank(World& world, int number, const std::function<void(SimulatedRank&)>& body)
    : world_(world),
      number_(number),
      host_(fmt::format("n{}", node())),
      fiber_(world.options.stack_bytes, [this, &body] { run(body); }) {
  world_communicator_ = std::make_unique<SimulatedCommunicator>(*this, world.groups.front());
}

void Rank::run(const std::function<void(SimulatedRank&)>& body) {
  try {
    if (!world_.gives_up) body(*this);
  } catch (const GivenUp&) {
  } catch (...) {
    fault_ = std::current_exception();
    if (!lanes_.empty()) world_.must_stop = true;
  }
  --world_.running;
}

// The members meet, as they do where MPI makes a communicator, and the plan travels as it does
// there.
std::unique_ptr<Communicator> Rank::group(const GroupLabel& label, const std::vector<int>& ranks) {
  auto made = std::make_unique<SimulatedCommunicator>(
      *this, world_.group(label, ranks, groups_made_[{label.name, ranks}]++));
  if (ranks.size() == 1) return made;
  made->barrier().wait_host();
  if (world_.options.planner) {
    made->follow(plan_from_text(
        made->read_once([&] { return plan_to_text(world_.options.planner(label.name, ranks)); })));
  }
  return made;
}

Work Rank::submit(std::vector<Queued> operations) {
  if (unwinds(world_) || operations.empty()) return {};
  const Queued& first = operations.front();
  auto state = std::make_shared<CallState>(*this, operations.size(), first.key.lane, first.name);
  for (Queued& operation : operations) {
    const LaneKey key = operation.key;
    std::deque<Entry>& lane = lanes_[key];
    lane.push_back({std::move(operation), state});
    ++world_.in_flight;
    if (lane.size() == 1) begin(key);
  }
  return Work(std::move(state));
}

void Rank::begin(const LaneKey& key) {
  Entry& head = lanes_.at(key).front();
  head.id = recorder_.begin(key.lane, key.peer, key.sends, head.queued.name, head.queued.bytes);
  head.queued.operation->ended = [this, key] { finish(key); };
  world_.simulation.start(*head.queued.operation);
}

void Rank::finish(const LaneKey& key) {
  const auto lane = lanes_.find(key);
  const Entry done = std::move(lane->second.front());
  lane->second.pop_front();
  recorder_.end(done.id);
  --world_.in_flight;
  if (lane->second.empty()) {
    lanes_.erase(lane);
  } else {
    begin(key);
  }
  done.state->finish_one();
  if (awaited_ == done.state.get() && awaited_->is_done()) {
    world_.simulation.wake_when_free(number_, *this);
  }
}

void Rank::wait(CallState& state, int lane, std::string_view name) {
  if (state.is_done() || unwinds(world_)) return;
  const double begin = now();
  awaited_ = &state;
  suspend();
  awaited_ = nullptr;
  const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(1e9 * seconds); };
  recorder_.add_exposed(lane, name, nanoseconds(begin), nanoseconds(now()));
}

void Rank::suspend() {
  fiber_.suspend();
  unwinds(world_);
}

void Rank::wake() {
  running_rank = number_;
  fiber_.resume();
  running_rank = -1;
}

void Rank::unwind() {
  while (!fiber_.ended()) wake();
}

std::string Rank::doing() const {
  if (ended()) return fmt::format("rank {} has ended", number_);
  const std::vector<Operation> operations = recorder_.under_way();
  if (operations.empty()) return fmt::format("rank {} waits for nothing", number_);
  const Operation& oldest = operations.front();
  const std::string peer =
      oldest.peer < 0 ? "" : fmt::format(" {} {}", oldest.sends ? "to" : "from", oldest.peer);
  return fmt::format("rank {} waits in {} {}{} of {}", number_, oldest.name, oldest.sequence, peer,
                     world_.groups[static_cast<std::size_t>(oldest.lane)].label.name);
}

struct FaultText {
  ExitStatus status = ExitStatus::kInternal;
  std::string text;
  bool operator==(const FaultText&) const = default;
};

FaultText text_of(const std::exception_ptr& fault) {
  const Error error = caught(fault);
  return {error.status(), error.what()};
}

// Throws what the ranks have thrown, if any has.
void throw_fault(const std::vector<std::unique_ptr<Rank>>& ranks) {
  const auto failed = [](const std::unique_ptr<Rank>& rank) { return rank->fault() != nullptr; };
  const auto first = std::ranges::find_if(ranks, failed);
  if (first == ranks.end()) return;
  const FaultText fault = text_of((*first)->fault());
  const bool same = std::ranges::all_of(ranks, [&](const std::unique_ptr<Rank>& rank) {
    return failed(rank) && text_of(rank->fault()) == fault;
  });
  if (same) std::rethrow_exception((*first)->fault());
  rethrow(fault.status, fmt::format("rank {}: {}", (*first)->rank(), fault.text));
}

// Why nothing moves: the waiting ranks first.
std::string standstill(const std::vector<std::unique_ptr<Rank>>& ranks,
                       const Simulation& simulation) {
  std::vector<std::string> words;
  for (const bool has_ended : {false, true}) {
    for (const auto& rank : ranks) {
      if (rank->ended() == has_ended) words.push_back(rank->doing());
    }
  }
  if (words.size() > kNamedRanks) {
    words.resize(kNamedRanks);
    words.emplace_back("...");
  }
  return fmt::format("nothing moves any more: {} (messages: {})", fmt::join(words, "; "),
                     simulation.waits());
}

}  // namespace

SimulatedRanksResult run_simulated_ranks(const Network& network, int ranks,
                                         const SimulatedRanksOptions& options,
                                         const std::function<void(SimulatedRank&)>& body) {
  TRIREME_CHECK(options.world.contents, "blocking code needs the contents of messages");
  World world(network, ranks, options);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  world.group("world", all, 0);
  std::vector<std::unique_ptr<Rank>> made;
  for (int number = 0; number < ranks; ++number) {
    made.push_back(std::make_unique<Rank>(world, number, body));
    world.simulation.wake_in(0.0, *made.back());
  }
  world.running = ranks;
  std::exception_ptr fault;
  try {
    while (!world.must_stop && (world.running > 0 || world.in_flight > 0)) {
      if (!world.simulation.step()) throw InternalError(standstill(made, world.simulation));
    }
  } catch (...) {
    fault = std::current_exception();
  }
  world.gives_up = true;
  for (const auto& rank : made) rank->unwind();
  throw_fault(made);
  if (fault) std::rethrow_exception(fault);
  SimulatedRanksResult result{world.simulation.result()};
  result.seconds = std::max(result.seconds, world.simulation.now());
  for (const auto& rank : made) {
    result.worst_stack = std::max(result.worst_stack, std::uint64_t{rank->stack_used()});
  }
  return result;
}

int running_simulated_rank() {
  return running_rank;
}

}  // namespace trireme
