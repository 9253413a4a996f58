#include "support/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "trireme/base/error.h"

#include "comm/reduce.h"
#include "support/mpi_meeting.h"

namespace trireme::testing {
namespace {

using nccl::Result;

constexpr auto kUnhandledCuda = static_cast<Result>(1);
constexpr auto kInvalidArgument = static_cast<Result>(4);
constexpr auto kInvalidUsage = static_cast<Result>(5);

FakeNccl* current = nullptr;
int made = 0;  // so that no message left over by one reaches another

struct Id {  // what a unique id holds
  int maker;
  int serial;  // below kIds
};
constexpr int kIds = 32, kMakers = 16;
constexpr int kAbortTag = 1 << 18;  // added to a communicator's own

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

// Ranks find each other as they do in NCCL: each tells the maker of the id, who tells all.
struct FakeNccl::Comm {
  MPI_Comm channel = MPI_COMM_NULL;
  int tag = 0, ranks = 1, rank = 0, maker = 0;
  static constexpr int kNowhere = -1;
  std::vector<int> places;               // ranks of the channel, by rank, once they have met
  std::vector<std::array<int, 2>> told;  // (rank, place), at the maker
  std::array<int, 2> own = {};
  std::vector<MPI_Request> requests;
  int phase = 0;

  std::function<bool()> settled;  // empty: nothing is in progress
  int polls = 0;                  // that are still answered with kInProgress
  Result fails_with = Result::kSuccess;
  bool finalized = false;
  std::atomic<bool> aborted = false;
  bool connected = false;        // all ranks
  std::set<int> linked;          // ranks that send to this one or receive from it
  std::atomic<int> running = 0;  // operations on streams

  bool all_done() {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) requests.clear();
    return done != 0;
  }
  std::vector<int> others() const {
    std::vector<int> result;
    for (const int place : places) {
      if (place != own[1]) result.push_back(place);
    }
    return result;
  }
  bool met() {
    if (ranks == 1) return true;
    const bool makes = rank == 0;
    const int bytes = ranks * static_cast<int>(sizeof(int));
    if (phase == 0) {
      requests.resize(static_cast<std::size_t>(makes ? ranks - 1 : 2));
      if (makes) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
          MPI_Irecv(told[i].data(), 2, MPI_INT, MPI_ANY_SOURCE, tag, channel, &requests[i]);
        }
      } else {
        MPI_Isend(own.data(), 2, MPI_INT, maker, tag, channel, &requests[0]);
        MPI_Irecv(places.data(), bytes, MPI_BYTE, maker, tag, channel, &requests[1]);
      }
      ++phase;
    }
    if (phase == 1 && all_done()) {
      ++phase;
      if (!makes) return true;
      places[0] = own[1];
      for (const auto& [other, place] : told) places[static_cast<std::size_t>(other)] = place;
      requests.resize(told.size());
      for (std::size_t i = 0; i < requests.size(); ++i) {
        MPI_Isend(places.data(), bytes, MPI_BYTE, told[i][1], tag, channel, &requests[i]);
      }
    }
    return phase == 2 && all_done();
  }
  void tell_of_abort() {
    for (const int place : places) {
      if (place == own[1] || place == kNowhere) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(nullptr, 0, MPI_BYTE, place, tag + kAbortTag, channel, &request);
      MPI_Request_free(&request);
    }
  }
  bool peer_has_aborted() const {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, tag + kAbortTag, channel, &found, MPI_STATUS_IGNORE);
    return found != 0;
  }
  // Where it is given up.
  void cancel() {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      give_up(requests[i], phase == 1 && (rank == 0 || i == 1));
    }
    requests.clear();
  }
};

// Messages that travel together, and what is done when all have come.
struct FakeNccl::Operation {
  struct Message {
    std::byte* data;
    std::size_t bytes;
    int peer;
    bool sends;
  };
  Operation(FakeCuda& given_cuda, std::shared_ptr<Comm> given_comm, cuda::StreamHandle given_stream)
      : cuda(given_cuda), comm(std::move(given_comm)), stream(given_stream) {}

  FakeCuda& cuda;
  std::shared_ptr<Comm> comm;
  cuda::StreamHandle stream;
  std::vector<Message> messages;
  std::vector<std::pair<const void*, std::size_t>> memory;  // that it uses
  std::vector<std::vector<std::byte>> received;             // by rank, for a collective
  std::function<void(Operation&)> start, finish;
  std::vector<MPI_Request> requests;
  bool started = false;
  bool point_to_point = false;
  std::atomic<bool> over = false;

  bool uses(const std::byte* data, std::size_t bytes) const {
    return !over && !comm->aborted && std::ranges::any_of(memory, [&](const auto& used) {
      return overlap(static_cast<const std::byte*>(used.first), used.second, data, bytes);
    });
  }
  void check() {
    for (const auto& [data, bytes] : memory) cuda.check_access(data, bytes, "NCCL's use");
  }
  // Everybody's `bytes` at `data`, by rank, when it has come.
  void bring_all(const void* data, std::size_t bytes) {
    received.resize(static_cast<std::size_t>(comm->ranks));
    for (int rank = 0; rank < comm->ranks; ++rank) {
      auto& part = received[static_cast<std::size_t>(rank)];
      part.resize(bytes);
      if (rank == comm->rank) {
        std::memcpy(part.data(), data, bytes);
        continue;
      }
      messages.push_back({part.data(), bytes, rank, false});
      messages.push_back(
          {const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, rank, true});
    }
  }
  void post() {
    requests.resize(messages.size(), MPI_REQUEST_NULL);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const int place = comm->places[static_cast<std::size_t>(message.peer)];
      const int bytes = static_cast<int>(message.bytes);
      if (message.sends) {  // until the other has come for it
        MPI_Issend(message.data, bytes, MPI_BYTE, place, comm->tag, comm->channel, &requests[i]);
      } else {
        MPI_Irecv(message.data, bytes, MPI_BYTE, place, comm->tag, comm->channel, &requests[i]);
      }
    }
  }
  // What the stream asks.
  bool ended() {
    over = advance();
    return over;
  }
  bool advance() {
    if (comm->aborted) {
      for (std::size_t i = 0; i < requests.size(); ++i) {
        give_up(requests[i], !messages[i].sends);
      }
      --comm->running;
      return true;
    }
    if (!started) {
      started = true;
      check();
      if (start) start(*this);
      post();
    }
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) return false;
    check();
    if (finish) finish(*this);
    --comm->running;
    return true;
  }
};

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

// Answers kInProgress so long, or is settled at once.
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
  comm->polls = static_cast<int>(random_() % 4);
  if (comm->polls == 0 && comm->fails_with == Result::kSuccess && settled()) {
    return Result::kSuccess;
  }
  comm->settled = std::move(settled);
  return Result::kInProgress;
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

Result FakeNccl::init_rank(CommHandle& handle, int ranks, const nccl::UniqueId& id, int rank) {
  const std::lock_guard lock(mutex_);
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
    if (abort_reaches_peers && comm->peer_has_aborted()) comm->fails_with = Result::kRemoteError;
    state = state_ == Result::kSuccess ? comm->fails_with : state_.load();
    if (state != Result::kSuccess || !comm->settled) return Result::kSuccess;
    if (comm->polls > 0) {
      --comm->polls;
    } else if (comm->settled()) {
      comm->settled = nullptr;
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
  const auto comm = find(handle, "finalize");
  if (!comm) return kInvalidArgument;
  comm->finalized = true;
  return begin(comm, [comm = comm.get()] { return comm->running == 0; });
}

Result FakeNccl::destroy(CommHandle handle) {
  const std::lock_guard lock(mutex_);
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
  {
    const std::lock_guard lock(mutex_);
    const auto comm = find(handle, "abort");
    if (!comm) return kInvalidArgument;
    if (abort_reaches_peers) comm->tell_of_abort();
    comm->cancel();
    comm->settled = nullptr;  // what it holds refers to the communicator
    comm->aborted = true;
    std::erase_if(registered_, [&](const auto& e) { return e.second.comm == handle; });
    comms_.erase(handle);
    ++aborted_;
  }
  cuda_.step();  // kernels end by themselves: nothing reaches a peer from now on
  return Result::kSuccess;
}

Result FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  Result result;
  if (scripted(result) && !fails_later_) return result;
  if (grouping_) write_down("a group inside of a group");
  grouping_ = true;
  return Result::kSuccess;
}

Result FakeNccl::group_end() {
  const std::lock_guard lock(mutex_);
  if (!grouping_) write_down("a group ended twice");
  grouping_ = false;
  const auto operation = std::exchange(group_, nullptr);
  const auto comm = std::exchange(group_comm_, nullptr);
  Result result;
  if (!operation) return scripted(result) ? result : Result::kSuccess;
  return launch(comm, operation);
}

// Whether the hosts that the operation needs have come.
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
  return [meetings] {
    return std::ranges::all_of(meetings, [](const auto& m) { return m->all_are_here(); });
  };
}

// On the stream when it has settled.
Result FakeNccl::launch(const std::shared_ptr<Comm>& comm, std::shared_ptr<Operation> operation) {
  std::erase_if(operations_, [](const auto& known) { return known.expired(); });
  operations_.push_back(operation);
  return begin(comm, [this, comm = comm.get(), connected = connected(comm, *operation),
                      operation = std::move(operation)] {
    if (!connected()) return false;
    ++operation->comm->running;
    cuda_.enqueue_until(Stream({DeviceKind::kCuda, 0}, operation->stream, &cuda_),
                        [operation] { return operation->ended(); });
    return true;
  });
}

Result FakeNccl::add(CommHandle handle, cuda::StreamHandle stream, const char* what,
                     std::function<void(Operation&)> fill) {
  const std::lock_guard lock(mutex_);
  const auto comm = find(handle, what);
  if (!comm) return kInvalidArgument;
  if (grouping_) {
    Result result;
    if (scripted(result) && !fails_later_) return result;
    if (!group_) {
      group_ = std::make_shared<Operation>(cuda_, comm, stream);
      group_comm_ = comm;
    }
    fill(*group_);
    return Result::kSuccess;
  }
  const auto operation = std::make_shared<Operation>(cuda_, comm, stream);
  fill(*operation);
  return launch(comm, operation);
}

Result FakeNccl::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op,
                            CommHandle comm, cuda::StreamHandle stream) {
  return add(comm, stream, "all_reduce", [=](Operation& operation) {
    const std::size_t bytes = count * size_of(dtype);
    operation.memory = {{data, bytes}};
    operation.start = [=](Operation& self) { self.bring_all(data, bytes); };
    operation.finish = [=](Operation& self) {
      std::vector<const std::byte*> sources;
      for (const auto& part : self.received) sources.push_back(part.data());
      reduce_in_order(dtype, op, sources, static_cast<std::byte*>(data), count);
    };
  });
}

Result FakeNccl::reduce_scatter(const void* input, void* output, std::size_t part_count,
                                DType dtype, ReduceOp op, CommHandle comm,
                                cuda::StreamHandle stream) {
  return add(comm, stream, "reduce_scatter", [=](Operation& operation) {
    const std::size_t part = part_count * size_of(dtype);
    const std::size_t bytes = part * static_cast<std::size_t>(operation.comm->ranks);
    operation.memory = {{input, bytes}, {output, part}};
    operation.start = [=](Operation& self) { self.bring_all(input, bytes); };
    operation.finish = [=](Operation& self) {
      std::vector<const std::byte*> sources;
      for (const auto& from : self.received) {
        sources.push_back(from.data() + part * static_cast<std::size_t>(self.comm->rank));
      }
      reduce_in_order(dtype, op, sources, static_cast<std::byte*>(output), part_count);
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

Result FakeNccl::allocate(void*& memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Result result;
  if (scripted(result) && !fails_later_) return result;
  std::size_t held = bytes;
  for (const auto& [data, size] : memory_) held += size;
  if (held > memory_limit) return kUnhandledCuda;
  try {
    if (memory_stream_ == nullptr) memory_stream_ = cuda_.create_stream(0, false);
    memory = cuda_.allocate(bytes, memory_stream_);
  } catch (const Error&) {
    return kUnhandledCuda;
  }
  if (memory == nullptr) return kUnhandledCuda;
  memory_.emplace(static_cast<std::byte*>(memory), bytes);
  return Result::kSuccess;
}

// Nothing that uses it may be on a stream or registered.
void FakeNccl::check_idle(const std::byte* data, std::size_t bytes, const char* what) {
  for (const auto& known : operations_) {
    const auto operation = known.lock();
    if (operation && operation->uses(data, bytes)) {
      write_down(std::string(what) + " while an operation uses it");
    }
  }
}

Result FakeNccl::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto known = memory_.find(static_cast<std::byte*>(memory));
  if (known == memory_.end()) {
    write_down("memory was freed twice");
    return kInvalidArgument;
  }
  const auto [data, bytes] = *known;
  check_idle(data, bytes, "memory was freed");
  for (const auto& [handle, registered] : registered_) {
    if (overlap(registered.data, registered.bytes, data, bytes)) {
      write_down("memory was freed while it was registered");
    }
  }
  memory_.erase(known);
  cuda_.free(memory, memory_stream_);
  if (memory_.empty()) cuda_.destroy_stream(std::exchange(memory_stream_, nullptr));
  return Result::kSuccess;
}

Result FakeNccl::register_memory(CommHandle handle, Registration kind, void* memory,
                                 std::size_t bytes, void*& registration) {
  const std::lock_guard lock(mutex_);
  const auto comm = find(handle, "register_memory");
  if (!comm) return kInvalidArgument;
  const auto* data = static_cast<const std::byte*>(memory);
  registration = nullptr;
  const auto done = [this, kind, data, bytes, handle, to = &registration] {
    *to = reinterpret_cast<void*>(++registrations_);
    registered_.emplace(*to, Registered{kind, data, bytes, handle});
    return true;
  };
  if (kind == Registration::kBuffer) {
    Result result;
    if (scripted(result) && !fails_later_) return result;
    cuda_.check_access(memory, bytes, "a registration");
    done();
    return Result::kSuccess;
  }
  const auto own = memory_.upper_bound(data);
  if (!windows || own == memory_.begin() ||
      data + bytes > std::prev(own)->first + std::prev(own)->second) {
    write_down("a window of memory that ranks cannot share");
    return kInvalidArgument;
  }
  for (const auto& [other, registered] : registered_) {
    if (registered.kind == kind && overlap(registered.data, registered.bytes, data, bytes)) {
      write_down("memory is in two windows");
    }
  }
  if (!peers_are_mapped) return Result::kSuccess;
  const auto meeting = std::make_shared<Meeting>(meetings_, comm->tag, comm->others());
  return begin(comm, [meeting, done] { return meeting->all_are_here() && done(); });
}

Result FakeNccl::deregister_memory(CommHandle handle, Registration kind, void* registration) {
  const std::lock_guard lock(mutex_);
  if (!find(handle, "deregister_memory")) return kInvalidArgument;
  const auto known = registered_.find(registration);
  if (known == registered_.end() || known->second.kind != kind || known->second.comm != handle) {
    write_down("memory was deregistered that is not registered so");
    return kInvalidArgument;
  }
  check_idle(known->second.data, known->second.bytes, "memory was deregistered");
  registered_.erase(known);
  return Result::kSuccess;
}

FakeNccl* current_fake_nccl() {
  return current;
}

}  // namespace trireme::testing
