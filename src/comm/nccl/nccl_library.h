// NCCL as the host sees it: the few calls that the program makes, behind a class, so that a test
// can replace it by a scripted one. No NCCL type appears here, and everything here exists in a
// build without NCCL too.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/nccl_tuning.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/dtype.h"

namespace trireme::nccl {

using CommHandle = void*;  // an ncclComm_t
using UniqueId = std::array<std::byte, 128>;

// NCCL's own numbers; any value that is not named here is an error too.
enum class Result : int { kSuccess = 0, kSystemError = 2, kRemoteError = 6, kInProgress = 7 };

// All of the calls below exist since 2.19 except windows, which came with 2.27.
inline constexpr int kOldestVersion = cuda::kOldestNccl;
// NCCL's setting that makes operations start on the device in the order of the host's calls. The
// program sets it to 1 and cannot work with another value.
inline constexpr const char* kLaunchOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";

// "2.28.9" of 22809.
std::string version_text(int version);

// Why a NCCL of a version cannot do what `tuning` asks for; empty if it can.
std::string why_not(const NcclTuning& tuning, int version);

// Throws NcclError for a version older than kOldestVersion; the message names `path`, its file.
void check_version(int version, const std::string& path);

// Thread-safe for different communicators; only one thread at a time may use a communicator.
// Communicators are non-blocking: a call that takes time returns kInProgress, and async_error says
// when it has settled. Functions throw only where it says so. Reductions take counts of elements,
// all other calls take bytes.
class Library {
 public:
  virtual ~Library() = default;

  virtual int version() = 0;       // 22809; 0 if the library does not say
  virtual std::string path() = 0;  // the file that was opened
  // NCCL's message for a fault, one line. `comm` may be nullptr.
  virtual std::string words(Result result, CommHandle comm) = 0;

  virtual Result make_unique_id(UniqueId& id) = 0;
  // Why this library cannot do what `tuning` asks for; empty if it can.
  virtual std::string why_not(const NcclTuning& tuning) = 0;
  // Uses the calling thread's device, and the fields of the configuration that `tuning` has. NCCL's
  // own lines and tools call it `name`, which must live as long as it does. Once `comm` is set it
  // must be destroyed or aborted, whatever the result.
  virtual Result init_rank(CommHandle& comm, const std::string& name, int ranks, const UniqueId& id,
                           int rank, const NcclTuning& tuning) = 0;
  // Gives the state of the last call, or what has gone wrong since.
  virtual Result async_error(CommHandle comm, Result& state) = 0;
  virtual Result finalize(CommHandle comm) = 0;
  virtual Result destroy(CommHandle comm) = 0;  // after finalize has settled
  // Ends what runs on the device, and the communicator.
  virtual Result abort(CommHandle comm) = 0;

  // These queue an operation on a stream. Nothing may be queued behind it until it has settled.
  // Calls of one thread between group_start and group_end are one operation, which group_end
  // queues.
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

  // Allocates memory of the calling thread's device, of the kind that ranks can share.
  virtual Result allocate(void*& memory, std::size_t bytes) = 0;
  virtual Result free(void* memory) = 0;  // it must not be in use any more

  // How memory is registered with a communicator. In both cases all ranks use the same kind, and
  // the memory must not be in use when the registration ends. `registration` is set when the call
  // has settled, so it must stay at its address until then.
  enum class Registration {
    kBuffer,  // each rank its own (ncclCommRegister)
    kWindow   // collective, mapped into all ranks (ncclCommWindowRegister); memory of allocate()
  };
  virtual bool has_windows() = 0;  // whether this version has them
  // The registration is nullptr if the library has no use for it.
  virtual Result register_memory(CommHandle comm, Registration kind, void* data, std::size_t bytes,
                                 void*& registration) = 0;
  virtual Result deregister_memory(CommHandle comm, Registration kind, void* registration) = 0;
};

// Returns NCCL itself, which is opened by the first call. Throws NcclError if it is not found, is
// too old, lacks a function, or is not part of this build.
std::shared_ptr<Library> load_library();

}  // namespace trireme::nccl
