// A NCCL for tests without a GPU: its ranks are those of MPI. An operation is carried out over MPI
// when the stream of a scripted CUDA reaches it, so it ends when all its ranks have come; until
// then the stream stands still. Calls answer kInProgress for a while drawn from a seed, and what
// they queue is on the stream only after that. Sends and receives that are not one group wait for
// each other. What the real one leaves undefined is written down.
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

  // Collective over all ranks, as the destructor; but not where an exception is in flight.
  FakeNccl(FakeCuda& cuda, std::uint64_t seed);
  ~FakeNccl() override;

  // The n-th call from now (1: the next) ends with `result`, at once or, where `later`, as the
  // state that async_error finds; 0: none does. Calls that end something, and async_error, do not
  // count.
  void fail_call(std::size_t n, Result result, bool later);
  std::size_t calls() const { return calls_; }
  // From now on, what every communicator is in.
  void set_state(Result state) { state_ = state; }

  std::size_t alive() const;  // communicators
  std::size_t destroyed() const { return destroyed_; }
  std::size_t aborted() const { return aborted_; }
  std::size_t registered() const { return registered_; }  // buffers
  std::vector<std::string> faults() const;

  bool found = true;  // on this machine
  int reported_version = 22809;
  std::function<void()> on_poll;  // called from async_error while something is in progress
  // What a communicator's peers find when it is aborted: a remote error, as over a network, or
  // nothing at all, as within a node.
  bool abort_reaches_peers = false;
  std::function<void()> on_abort;  // called from abort, before anything is done

  int version() override { return reported_version; }
  std::string words(Result result, CommHandle comm) override;
  Result make_unique_id(nccl::UniqueId& id) override;
  Result init_rank(CommHandle& comm, int ranks, const nccl::UniqueId& id, int rank) override;
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
  Result register_buffer(CommHandle comm, void* data, std::size_t bytes,
                         void*& registration) override;
  Result deregister_buffer(CommHandle comm, void* registration) override;

 private:
  struct Comm;
  struct Operation;  // on a stream

  std::shared_ptr<Comm> find(CommHandle handle, const char* what);
  bool scripted(Result& result);  // whether this call is to fail
  Result add(CommHandle comm, cuda::StreamHandle stream, const char* what,
             std::function<void(Operation&)> fill);
  Result launch(const std::shared_ptr<Comm>& comm, std::shared_ptr<Operation> operation);
  Result begin(const std::shared_ptr<Comm>& comm, std::function<bool()> settled);
  void write_down(const std::string& fault);

  FakeCuda& cuda_;
  MPI_Comm channel_ = MPI_COMM_NULL;
  mutable std::mutex mutex_;  // guards all but the operations
  std::mt19937_64 random_;
  std::map<CommHandle, std::shared_ptr<Comm>> comms_;
  std::shared_ptr<Operation> group_;  // being put together
  std::shared_ptr<Comm> group_comm_;
  bool grouping_ = false;
  int ids_ = 0;
  std::size_t calls_ = 0, fails_at_ = 0, destroyed_ = 0, registered_ = 0;
  std::atomic<std::size_t> aborted_ = 0;
  Result fails_with_ = Result::kSuccess;
  bool fails_later_ = false;
  std::atomic<Result> state_ = Result::kSuccess;
  std::vector<std::string> faults_;
};

// The last one made, not owned: what nccl::load_library gives with fake_nccl_library.cc.
FakeNccl* current_fake_nccl();

}  // namespace trireme::testing
