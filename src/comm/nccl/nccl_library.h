// NCCL as the host sees it: the few calls that the program makes, behind a class, so that a test
// can put a scripted one in its place. No type of NCCL's appears here, and everything here exists
// in a build without NCCL too.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/dtype.h"

namespace trireme::nccl {

using CommHandle = void*;  // an ncclComm_t
using UniqueId = std::array<std::byte, 128>;

// NCCL's own numbers; what is not named here is an error too.
enum class Result : int { kSuccess = 0, kSystemError = 2, kRemoteError = 6, kInProgress = 7 };

// The oldest NCCL that has all of the calls below but windows, which are from 2.27
// (ncclCommRegister came last).
inline constexpr int kOldestVersion = 21900;

// "2.28.9" of 22809.
std::string version_text(int version);

// Thread-safe for different communicators; a communicator is for one thread at a time.
// Communicators do not block: what takes time answers kInProgress, and async_error says when it has
// settled. Nothing here throws but where it says so. Element counts, not bytes.
class Library {
 public:
  virtual ~Library() = default;

  virtual int version() = 0;  // 22809; 0 where the library does not tell
  // What NCCL says of a fault, one line. `comm` may be none.
  virtual std::string words(Result result, CommHandle comm) = 0;

  virtual Result make_unique_id(UniqueId& id) = 0;
  // On the calling thread's device. Once `comm` is set it is to be destroyed or aborted, whatever
  // the result.
  virtual Result init_rank(CommHandle& comm, int ranks, const UniqueId& id, int rank) = 0;
  // The state of what was called last, or of what went wrong since.
  virtual Result async_error(CommHandle comm, Result& state) = 0;
  virtual Result finalize(CommHandle comm) = 0;
  virtual Result destroy(CommHandle comm) = 0;  // after finalize has settled
  virtual Result abort(CommHandle comm) = 0;  // ends what runs on the device, and the communicator

  // Queued on a stream. Until they have settled nothing may be queued behind them. Of the calling
  // thread between group_start and group_end, they are one operation, which group_end queues.
  virtual Result group_start() = 0;
  virtual Result group_end() = 0;
  virtual Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op,
                            CommHandle comm, cuda::StreamHandle stream) = 0;
  virtual Result reduce_scatter(const void* input, void* output, std::size_t part_count,
                                DType dtype, ReduceOp op, CommHandle comm,
                                cuda::StreamHandle stream) = 0;
  virtual Result all_gather(const void* input, void* output, std::size_t part_bytes,
                            CommHandle comm, cuda::StreamHandle stream) = 0;
  virtual Result broadcast(void* data, std::size_t bytes, int root, CommHandle comm,
                           cuda::StreamHandle stream) = 0;
  virtual Result send(const void* data, std::size_t bytes, int peer, CommHandle comm,
                      cuda::StreamHandle stream) = 0;
  virtual Result receive(void* data, std::size_t bytes, int peer, CommHandle comm,
                         cuda::StreamHandle stream) = 0;

  // Device memory of the kind that ranks can share, of the calling thread's device.
  virtual Result allocate(void*& memory, std::size_t bytes) = 0;
  virtual Result free(void* memory) = 0;  // nothing uses it any more

  // How memory is made known to a communicator. Either way it is the same on all ranks, and nothing
  // of it is in use when it ends. `registration` is set when the call has settled, so it stays
  // where it is until then.
  enum class Registration {
    kBuffer,  // each rank its own (ncclCommRegister)
    kWindow   // collective; mapped into all ranks (ncclCommWindowRegister). Of memory of allocate()
  };
  virtual bool has_windows() = 0;  // this version
  // The registration is none where the library has no use for it.
  virtual Result register_memory(CommHandle comm, Registration kind, void* data, std::size_t bytes,
                                 void*& registration) = 0;
  virtual Result deregister_memory(CommHandle comm, Registration kind, void* registration) = 0;
};

// NCCL itself, opened when this is first called. Throws NcclError where it is not found, lacks a
// call, or this build has none.
std::shared_ptr<Library> load_library();

}  // namespace trireme::nccl
