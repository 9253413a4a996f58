#include "support/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include <sched.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce.h"

#include "support/fake_nccl_comm.h"

namespace trireme::testing {
namespace {

using nccl::Result;

constexpr auto kInternalError = static_cast<Result>(3);
constexpr auto kInvalidUsage = static_cast<Result>(5);

FakeNccl* current = nullptr;
int made = 0;  // part of the tags, so that a message of an earlier FakeNccl reaches no later one

struct Id {  // what a unique id holds
  int maker;
  int serial;  // below kIds
};
constexpr int kIds = 32, kMakers = 16;

}  // namespace

FakeNccl::FakeNccl(FakeCuda& cuda, std::uint64_t seed) : cuda_(cuda), random_(seed) {
  MPI_Comm_dup(MPI_COMM_WORLD, &channel_);
  MPI_Comm_dup(MPI_COMM_WORLD, &meetings_);
  ++made;
  current = this;
}

FakeNccl::~FakeNccl() {
  if (current == this) current = nullptr;
  if (std::uncaught_exceptions() > 0) return;
  MPI_Comm_free(&channel_);
  MPI_Comm_free(&meetings_);
}

void FakeNccl::fail_call(std::size_t n, Result result, bool later) {
  const std::lock_guard lock(mutex_);
  fails_at_ = n == 0 ? 0 : calls_ + n;
  fails_with_ = result;
  fails_later_ = later;
}

std::size_t FakeNccl::alive() const {
  const std::lock_guard lock(mutex_);
  return comms_.size();
}

std::size_t FakeNccl::registered(Registration kind) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(
      registered_, [&](const auto& entry) { return entry.second.kind == kind; }));
}

std::size_t FakeNccl::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_.size();
}

std::vector<std::string> FakeNccl::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void FakeNccl::write_down(const std::string& fault) {
  faults_.push_back(fault);
}

FakeNccl::Cost FakeNccl::cost() const {
  const std::lock_guard lock(mutex_);
  return cost_;
}

bool FakeNccl::scripted(Result& result) {
  result = fails_with_;
  return ++calls_ == fails_at_;
}

std::string FakeNccl::words(Result result, CommHandle) {
  return "scripted error " + std::to_string(static_cast<int>(result));
}

std::shared_ptr<FakeNccl::Comm> FakeNccl::find(CommHandle handle, const char* what) {
  const auto comm = comms_.find(handle);
  if (comm != comms_.end()) return comm->second;
  write_down(std::string(what) + " on a communicator that is not there");
  return nullptr;
}

// Returns kInProgress until the call has settled, or lets it settle at once.
Result FakeNccl::begin(const std::shared_ptr<Comm>& comm, std::function<bool()> settled) {
  Result result;
  if (comm->settled) {
    write_down("a communicator was used before its last call had settled");
    return kInvalidUsage;
  }
  if (scripted(result)) {
    if (!fails_later_) return result;
    comm->fails_with = result;
  }
  comm->caller = std::this_thread::get_id();
  comm->may_be_unsettled = true;
  if (!blocking) ++cost_.threads;
  comm->polls = static_cast<int>(random_() % 4);
  if (comm->polls == 0 && comm->fails_with == Result::kSuccess && settled()) {
    return Result::kSuccess;
  }
  comm->settled = std::move(settled);
  return blocking ? wait_until_settled(comm) : Result::kInProgress;
}

// The body of a blocking call, which holds the lock except while it waits.
Result FakeNccl::wait_until_settled(const std::shared_ptr<Comm>& comm) {
  comm->inside = true;
  ++inside_;
  while (!comm->aborted && comm->fails_with == Result::kSuccess) {
    if (comm->polls > 0) {
      --comm->polls;
    } else if (comm->settled()) {
      break;
    }
    mutex_.unlock();
    cuda_.move();
    sched_yield();
    mutex_.lock();
  }
  --inside_;
  comm->inside = false;
  comm->settled = nullptr;
  return comm->aborted ? kInternalError : comm->fails_with;
}

Result FakeNccl::make_unique_id(nccl::UniqueId& id) {
  const std::lock_guard lock(mutex_);
  Result result;
  if (scripted(result) && !fails_later_) return result;
  Id made = {.maker = 0, .serial = ids_++};
  MPI_Comm_rank(channel_, &made.maker);
  id = {};
  std::memcpy(id.data(), &made, sizeof made);
  return Result::kSuccess;
}

Result FakeNccl::init_rank(CommHandle& handle, const std::string& name, int ranks,
                           const nccl::UniqueId& id, int rank, const NcclTuning& tuning) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  given_ = tuning;
  given_name_ = name;
  given_rank_ = rank;
  if (on_init) on_init();
  Id given;
  std::memcpy(&given, id.data(), sizeof given);
  const auto comm = std::make_shared<Comm>();
  comm->channel = channel_;
  comm->tag = (made * kMakers + given.maker) * kIds + given.serial;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->maker = given.maker;
  comm->places.resize(static_cast<std::size_t>(ranks), Comm::kNowhere);
  comm->told.resize(static_cast<std::size_t>(ranks - 1));
  comm->own = {rank, 0};
  MPI_Comm_rank(channel_, &comm->own[1]);
  if (ranks == 1) comm->places[0] = comm->own[1];
  handle = comm.get();
  comms_.emplace(handle, comm);
  return begin(comm, [comm = comm.get()] { return comm->met(); });
}

Result FakeNccl::async_error(CommHandle handle, Result& state) {
  cuda_.move();
  std::function<void()> hook;
  {
    const std::lock_guard lock(mutex_);
    const auto comm = find(handle, "async_error");
    if (!comm) return kInvalidArgument;
    const bool by_caller = comm->caller == std::this_thread::get_id();
    ++(by_caller && comm->may_be_unsettled ? cost_.polls : cost_.watches);
    if (abort_reaches_peers && comm->peer_has_aborted()) comm->fails_with = Result::kRemoteError;
    state = state_ == Result::kSuccess ? comm->fails_with : state_.load();
    if (by_caller) comm->may_be_unsettled = comm->settled != nullptr;
    if (state != Result::kSuccess || !comm->settled) return Result::kSuccess;
    if (comm->polls > 0) {
      --comm->polls;
    } else if (comm->settled()) {
      comm->settled = nullptr;
      comm->may_be_unsettled = !by_caller;
      return Result::kSuccess;
    }
    state = Result::kInProgress;
    hook = on_poll;
  }
  if (hook) hook();
  return Result::kSuccess;
}

Result FakeNccl::finalize(CommHandle handle) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  const auto comm = find(handle, "finalize");
  if (!comm) return kInvalidArgument;
  comm->finalized = true;
  return begin(comm, [comm = comm.get()] { return comm->running == 0; });
}

Result FakeNccl::destroy(CommHandle handle) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  const auto comm = find(handle, "destroy");
  if (!comm) return kInvalidArgument;
  if (!comm->finalized || comm->settled) write_down("destroyed before it was finalized");
  if (std::erase_if(registered_, [&](const auto& e) { return e.second.comm == handle; }) > 0) {
    write_down("destroyed while memory was registered with it");
  }
  comms_.erase(handle);
  ++destroyed_;
  return Result::kSuccess;
}

Result FakeNccl::abort(CommHandle handle) {
  if (on_abort) on_abort();
  std::shared_ptr<Comm> comm;
  {
    const std::lock_guard lock(mutex_);
    comm = find(handle, "abort");
    if (!comm) return kInvalidArgument;
    if (abort_reaches_peers) comm->tell_of_abort();
    comm->cancel();
    if (comm->inside) {
      ++cost_.freed_in_use;
    } else {
      comm->settled = nullptr;  // it refers to the communicator
    }
    comm->aborted = true;
    std::erase_if(registered_, [&](const auto& e) { return e.second.comm == handle; });
    comms_.erase(handle);
    ++aborted_;
  }
  cuda_.step();  // kernels end by themselves: nothing reaches a peer from now on
  // Waits for graphs, however long it takes, like the real NCCL.
  while (is_in_graph(*comm)) {
    cuda_.step();
    usleep(100);
  }
  return Result::kSuccess;
}

bool FakeNccl::is_in_graph(const Comm& comm) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(operations_, [&](const auto& known) {
    const auto operation = known.lock();
    return operation && operation->in_graph && operation->comm.get() == &comm;
  });
}

Result FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  Result result;
  if (scripted(result) && !fails_later_) return result;
  if (grouping_) write_down("a group inside of a group");
  grouping_ = true;
  ++groups_;
  return Result::kSuccess;
}

Result FakeNccl::group_end() {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  if (!grouping_) write_down("a group ended twice");
  grouping_ = false;
  const auto operations = std::exchange(group_, {});
  const auto comm = std::exchange(group_comm_, nullptr);
  Result result;
  if (operations.empty()) return scripted(result) ? result : Result::kSuccess;
  return launch(comm, operations);
}

// Returns a function that says whether all hosts that the operation needs have entered it.
std::function<bool()> FakeNccl::connected(const std::shared_ptr<Comm>& comm,
                                          const Operation& operation) {
  const auto at_once = [] { return true; };
  if (!connects) return at_once;
  std::vector<std::shared_ptr<Meeting>> meetings;
  if (!operation.point_to_point) {
    if (std::exchange(comm->connected, true)) return at_once;
    meetings.push_back(std::make_shared<Meeting>(meetings_, comm->tag, comm->others()));
  }
  for (const Operation::Message& message : operation.messages) {
    if (!operation.point_to_point || message.peer == comm->rank) continue;
    if (!comm->linked.insert(message.peer).second) continue;
    const int place = comm->places[static_cast<std::size_t>(message.peer)];
    meetings.push_back(
        std::make_shared<Meeting>(meetings_, comm->tag + kAbortTag, std::vector{place}));
  }
  connections_ += meetings.size();
  return [meetings] {
    return std::ranges::all_of(meetings, [](const auto& m) { return m->all_are_here(); });
  };
}

// Queues the operations on their stream once the call has settled.
Result FakeNccl::launch(const std::shared_ptr<Comm>& comm,
                        std::vector<std::shared_ptr<Operation>> operations) {
  std::erase_if(operations_, [](const auto& known) { return known.expired(); });
  std::vector<std::function<bool()>> all_connected;
  for (const auto& operation : operations) {
    operations_.push_back(operation);
    all_connected.push_back(connected(comm, *operation));
  }
  return begin(comm, [this, all_connected, operations = std::move(operations)] {
    if (!std::ranges::all_of(all_connected, [](const auto& is_there) { return is_there(); })) {
      return false;
    }
    for (const auto& operation : operations) {
      operation->in_graph = cuda_.captures(operation->stream);
      const auto start = [operation] {
        const auto running = std::make_shared<Operation>(*operation);  // a graph may start many
        ++running->comm->running;
        return [running] { return running->ended(); };
      };
      cuda_.enqueue_until(Stream({DeviceKind::kCuda, 0}, operation->stream, &cuda_), start);
    }
    return true;
  });
}

Result FakeNccl::add(CommHandle handle, cuda::StreamHandle stream, const char* what,
                     std::function<void(Operation&)> fill) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  const auto comm = find(handle, what);
  if (!comm) return kInvalidArgument;
  if (grouping_) {
    Result result;
    if (scripted(result) && !fails_later_) return result;
  }
  const auto operation = std::make_shared<Operation>(cuda_, comm, stream);
  fill(*operation);
  note_place(*operation, handle, what);
  if (!grouping_) return launch(comm, {operation});
  group_comm_ = comm;
  if (operation->point_to_point && !group_.empty() && group_.back()->point_to_point) {
    fill(*group_.back());
  } else {
    group_.push_back(operation);
  }
  return Result::kSuccess;
}

void FakeNccl::put_in_order(const Comm& comm, std::vector<const std::byte*>& sources) const {
  if (order == Order::kTree) return;
  const int first = (order == Order::kOfRank ? comm.rank : comm.tag) % comm.ranks;
  std::ranges::rotate(sources, sources.begin() + first);
}

Result FakeNccl::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op,
                            CommHandle comm, cuda::StreamHandle stream) {
  return add(comm, stream, "all_reduce", [=, this](Operation& operation) {
    const std::size_t bytes = count * size_of(dtype);
    operation.memory = {{data, bytes}};
    operation.start = [=](Operation& self) { self.bring_all(data, bytes); };
    operation.finish = [=, this](Operation& self) {
      std::vector<const std::byte*> sources;
      for (const auto& part : self.received) sources.push_back(part.data());
      put_in_order(*self.comm, sources);
      reduce_tree(op, dtype, sources, static_cast<std::byte*>(data), count);
    };
  });
}

Result FakeNccl::reduce_scatter(const void* input, void* output, std::size_t part_count,
                                DType dtype, ReduceOp op, CommHandle comm,
                                cuda::StreamHandle stream) {
  return add(comm, stream, "reduce_scatter", [=, this](Operation& operation) {
    const std::size_t part = part_count * size_of(dtype);
    const std::size_t bytes = part * static_cast<std::size_t>(operation.comm->ranks);
    operation.memory = {{input, bytes}, {output, part}};
    operation.start = [=](Operation& self) { self.bring_all(input, bytes); };
    operation.finish = [=, this](Operation& self) {
      std::vector<const std::byte*> sources;
      for (const auto& from : self.received) {
        sources.push_back(from.data() + part * static_cast<std::size_t>(self.comm->rank));
      }
      put_in_order(*self.comm, sources);
      reduce_tree(op, dtype, sources, static_cast<std::byte*>(output), part_count);
    };
  });
}

Result FakeNccl::all_gather(const void* input, void* output, std::size_t part_bytes,
                            CommHandle comm, cuda::StreamHandle stream) {
  return add(comm, stream, "all_gather", [=](Operation& operation) {
    const auto ranks = static_cast<std::size_t>(operation.comm->ranks);
    operation.memory = {{input, part_bytes}, {output, part_bytes * ranks}};
    operation.start = [=](Operation& self) { self.bring_all(input, part_bytes); };
    operation.finish = [=](Operation& self) {
      auto* to = static_cast<std::byte*>(output);
      for (const auto& part : self.received) {
        std::memcpy(to, part.data(), part_bytes);
        to += part_bytes;
      }
    };
  });
}

Result FakeNccl::broadcast(void* data, std::size_t bytes, int root, CommHandle comm,
                           cuda::StreamHandle stream) {
  return add(comm, stream, "broadcast", [=](Operation& operation) {
    operation.memory = {{data, bytes}};
    auto* bytes_of_data = static_cast<std::byte*>(data);
    const Comm& self = *operation.comm;
    for (int rank = 0; rank < self.ranks; ++rank) {
      if (rank == root) continue;
      if (self.rank == root) operation.messages.push_back({bytes_of_data, bytes, rank, true});
      if (self.rank == rank) operation.messages.push_back({bytes_of_data, bytes, root, false});
    }
  });
}

Result FakeNccl::send(const void* data, std::size_t bytes, int peer, CommHandle comm,
                      cuda::StreamHandle stream) {
  return add(comm, stream, "send", [=](Operation& operation) {
    auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    operation.point_to_point = true;
    operation.memory.emplace_back(data, bytes);
    operation.messages.push_back({from, bytes, peer, true});
  });
}

Result FakeNccl::receive(void* data, std::size_t bytes, int peer, CommHandle comm,
                         cuda::StreamHandle stream) {
  return add(comm, stream, "receive", [=](Operation& operation) {
    operation.point_to_point = true;
    operation.memory.emplace_back(data, bytes);
    operation.messages.push_back({static_cast<std::byte*>(data), bytes, peer, false});
  });
}

FakeNccl* current_fake_nccl() {
  return current;
}

}  // namespace trireme::testing
