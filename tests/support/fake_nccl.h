// A NCCL for tests without a GPU. Its ranks are those of MPI. When the stream of a scripted CUDA
// reaches an operation, the operation runs over MPI. It ends when all its ranks have reached it;
// until then the stream stands still. Calls return kInProgress for a while drawn from a seed, and
// only then is their operation on the stream. Sends and receives that are not in one group wait for
// each other. It records uses that the real NCCL leaves undefined.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/nccl/nccl_library.h"
#include "support/fake_cuda.h"

namespace trireme::testing {

class FakeNccl : public nccl::Library {
 public:
  using Result = nccl::Result;
  using CommHandle = nccl::CommHandle;
  using Registration = nccl::Library::Registration;

  // Collective over all ranks. So is the destructor, except while an exception is in flight.
  FakeNccl(FakeCuda& cuda, std::uint64_t seed);
  ~FakeNccl() override;

  // Makes the n-th call from now (1: the next) end with `result`, at once or, with `later`, as the
  // state that async_error finds; 0: none. Calls that end something, and async_error, do not count.
  void fail_call(std::size_t n, Result result, bool later);
  std::size_t calls() const { return calls_; }
  // Sets the state of every communicator from now on.
  void set_state(Result state) { state_ = state; }

  // What the last communicator was given.
  const NcclTuning& given() const { return given_; }
  int given_rank() const { return given_rank_; }
  const std::string& given_name() const { return given_name_; }
  void forget_given() { given_ = {}; }
  std::size_t alive() const;  // communicators
  std::size_t destroyed() const { return destroyed_; }
  std::size_t aborted() const { return aborted_; }
  // The number of times that ranks were connected so far: by the first operation of a communicator,
  // or by the first with a peer. Counted only if `connects` is set.
  std::size_t connections() const { return connections_; }
  std::size_t groups() const { return groups_; }    // that were started
  std::size_t registered(Registration kind) const;  // registrations with live communicators
  std::size_t memory() const;                       // blocks of allocate()
  // How many operations of a name ("all_gather") were entered so far with all of their memory
  // registered with their communicator, and how many with other memory.
  struct Places {
    std::size_t registered = 0, elsewhere = 0;
  };
  Places places(const std::string& what) const;
  std::vector<std::string> faults() const;

  // What the communicators have cost so far.
  struct Cost {
    std::size_t calls = 0;    // of the library, without polls
    std::size_t polls = 0;    // async_error, by a caller that waits for its call to settle
    std::size_t watches = 0;  // async_error, by whoever looks for errors of what runs
    // Threads that NCCL 2.28 starts itself: one for each call, or group of calls, that may settle
    // later. A blocking call does its work in the thread that makes it.
    std::size_t threads = 0;
    // Aborts of a communicator that another thread was using. ncclCommAbort waits for NCCL's own
    // thread alone, so a blocking call goes on in memory that is free.
    std::size_t freed_in_use = 0;
  };
  Cost cost() const;
  std::size_t inside() const { return inside_; }  // threads that are in a blocking call

  // If true, communicators are blocking: a call returns when it has settled, or when another thread
  // has aborted its communicator.
  bool blocking = false;
  bool found = true;  // this machine has NCCL
  int reported_version = 22809;
  std::string reported_path = "/fake/libnccl.so.2";
  bool windows = true;                              // this version has them
  bool peers_are_mapped = true;                     // false: registration gives no window
  std::size_t memory_limit = std::size_t{1} << 30;  // of allocate(), bytes
  // If true, the first operation between ranks settles only when the hosts of all of them have
  // entered it, as when they have to connect first.
  bool connects = false;
  // The order in which contributions are added. kTree: as in our own reductions. kOfCommunicator:
  // each communicator starts at a different rank, as NCCL's rings may. kOfRank: each rank starts
  // elsewhere, which breaks NCCL's promise.
  enum class Order { kTree, kOfCommunicator, kOfRank };
  Order order = Order::kTree;
  std::function<void()> on_init;  // called while a communicator starts
  std::function<void()> on_poll;  // called from async_error while something is in progress
  // Whether a communicator's peers find a remote error when it is aborted, as over a network, or
  // nothing at all, as within a node.
  bool abort_reaches_peers = false;
  std::function<void()> on_abort;  // called from abort, before anything is done

  int version() override { return reported_version; }
  std::string path() override { return reported_path; }
  std::string words(Result result, CommHandle comm) override;
  Result make_unique_id(nccl::UniqueId& id) override;
  std::string why_not(const NcclTuning& tuning) override {
    return nccl::why_not(tuning, reported_version);
  }
  Result init_rank(CommHandle& comm, const std::string& name, int ranks, const nccl::UniqueId& id,
                   int rank, const NcclTuning& tuning) override;
  Result async_error(CommHandle comm, Result& state) override;
  Result finalize(CommHandle comm) override;
  Result destroy(CommHandle comm) override;
  Result abort(CommHandle comm) override;
  Result group_start() override;
  Result group_end() override;
  Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, CommHandle comm,
                    cuda::StreamHandle stream) override;
  Result reduce_scatter(const void* input, void* output, std::size_t part_count, DType dtype,
                        ReduceOp op, CommHandle comm, cuda::StreamHandle stream) override;
  Result all_gather(const void* input, void* output, std::size_t part_bytes, CommHandle comm,
                    cuda::StreamHandle stream) override;
  Result broadcast(void* data, std::size_t bytes, int root, CommHandle comm,
                   cuda::StreamHandle stream) override;
  Result send(const void* data, std::size_t bytes, int peer, CommHandle comm,
              cuda::StreamHandle stream) override;
  Result receive(void* data, std::size_t bytes, int peer, CommHandle comm,
                 cuda::StreamHandle stream) override;
  Result allocate(void*& memory, std::size_t bytes) override;
  Result free(void* memory) override;
  bool has_windows() override { return windows; }
  Result register_memory(CommHandle comm, Registration kind, void* data, std::size_t bytes,
                         void*& registration) override;
  Result deregister_memory(CommHandle comm, Registration kind, void* registration) override;

 private:
  struct Comm;
  struct Operation;  // an operation on a stream
  void put_in_order(const Comm& comm, std::vector<const std::byte*>& sources) const;
  struct Registered {
    Registration kind;
    const std::byte* data;
    std::size_t bytes;
    CommHandle comm;
  };

  std::shared_ptr<Comm> find(CommHandle handle, const char* what);
  bool scripted(Result& result);  // whether this call shall fail
  Result add(CommHandle comm, cuda::StreamHandle stream, const char* what,
             std::function<void(Operation&)> fill);
  Result launch(const std::shared_ptr<Comm>& comm,
                std::vector<std::shared_ptr<Operation>> operations);
  Result begin(const std::shared_ptr<Comm>& comm, std::function<bool()> settled);
  Result wait_until_settled(const std::shared_ptr<Comm>& comm);
  std::function<bool()> connected(const std::shared_ptr<Comm>& comm, const Operation& operation);
  void note_place(const Operation& operation, CommHandle comm, const char* what);
  void check_idle(const std::byte* data, std::size_t bytes, const char* what);
  void write_down(const std::string& fault);
  bool is_in_graph(const Comm& comm);  // whether a graph that exists or still runs holds it

  FakeCuda& cuda_;
  MPI_Comm channel_ = MPI_COMM_NULL, meetings_ = MPI_COMM_NULL;
  mutable std::mutex mutex_;  // guards everything except the operations
  std::mt19937_64 random_;
  std::map<CommHandle, std::shared_ptr<Comm>> comms_;
  std::vector<std::shared_ptr<Operation>> group_;  // the open group; messages form one operation
  std::shared_ptr<Comm> group_comm_;
  bool grouping_ = false;
  std::size_t groups_ = 0;
  int ids_ = 0;
  std::vector<std::weak_ptr<Operation>> operations_;
  std::map<void*, Registered> registered_;
  std::map<std::string, Places> places_;
  std::uintptr_t registrations_ = 0;  // number so far
  std::map<const std::byte*, std::size_t> memory_;
  cuda::StreamHandle memory_stream_ = nullptr;  // exists while there is memory
  std::size_t calls_ = 0, fails_at_ = 0, destroyed_ = 0, connections_ = 0;
  std::atomic<std::size_t> aborted_ = 0, inside_ = 0;
  Cost cost_;
  Result fails_with_ = Result::kSuccess;
  bool fails_later_ = false;
  std::atomic<Result> state_ = Result::kSuccess;
  std::vector<std::string> faults_;
  NcclTuning given_;
  int given_rank_ = -1;
  std::string given_name_;
};

// Returns the FakeNccl that was made last, not owned. nccl::load_library of fake_nccl_library.cc
// returns it.
FakeNccl* current_fake_nccl();

}  // namespace trireme::testing
