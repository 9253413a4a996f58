// A group of ranks that communicate. One interface with three backends: `self` (one rank), `mpi`,
// `nccl`.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/group_label.h"
#include "trireme/comm/work.h"
#include "trireme/tensor/tensor.h"

namespace trireme {

enum class ReduceOp {
  kSum,
  kMax,
  kMin,
  // A sum whose partial results travel in the tensor's own type. So bf16 and fp16 are rounded
  // wherever a partial result is sent on, and the bits depend on the algorithm.
  kRoundedSum,
};

// One message of an exchange. Messages between two ranks of a communicator arrive in the order in
// which they were sent.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int peer;  // rank in the communicator
  Tensor tensor;
};

// One of several all-gathers: see Communicator::all_gather.
struct Gather {
  Tensor input, output;
};

// Every operation is collective over the communicator: its ranks call the operations in the same
// order. A call returns at once. The operation reads its input and writes its output after the work
// that is queued on `ready` at the call. The caller must not touch the tensors until the Work is
// done. The tensors of an operation are either all on the host, or all on the GPU that
// Runtime::use_device names; `ready` is then a stream of that GPU. Anything else throws
// InternalError.
//
// Reductions add along one tree over the ranks, T(size) (src/comm/README.md, "Order of sums"), in
// fp32 for bf16 and fp16, and otherwise in the tensor's own type. They round once. So the result
// has the same bits on every rank, wherever the ranks run, and whichever of our algorithms the
// table names. Rings (keeps_order in algorithms.h) and kRoundedSum promise less: the same bits on
// every rank, but they depend on the algorithm. For tensors on a GPU that NCCL carries, less is
// guaranteed: the result has the same bits on every rank, and from run to run on the same grid,
// GPUs and links with the same NCCL and the same NCCL algorithm. NCCL decides the order of the sums
// and where bf16 and fp16 are rounded on the way.
//
// With NCCL, all ranks must start operations on the GPU and wait for MPI in the same program order,
// from one thread, because both need the hosts of the peers (src/comm/README.md).
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const GroupLabel& label() const = 0;
  const std::string& name() const { return label().name; }  // "world", "tensor", ...
  virtual int world_rank(int member) const = 0;  // world rank of a rank of this communicator
  virtual int lane_id() const = 0;               // the same number on all members; 0: the world

  // Whether the bits of a sum over tensors on such a device depend on the contributions alone, so
  // that another communicator with the same number of ranks gives the same bits. False where a
  // library carries it or the table names a ring. It says nothing of kRoundedSum.
  virtual bool fixes_order_of_sums(DeviceKind device) const = 0;

  // Reduces in place.
  virtual Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) = 0;
  // output (n) = this rank's n elements of the reduction of all inputs (size * n). output may be
  // input's own part; the rest of input is then undefined.
  virtual Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) = 0;
  // output (size * n) = the inputs (n) of all ranks, in rank order. input may be output's own part.
  virtual Work all_gather(const Stream& ready, Tensor input, Tensor output) = 0;
  // The same for each of `gathers`, as one operation where the backend has such.
  virtual Work all_gather_together(const Stream& ready, std::vector<Gather> gathers);
  virtual Work broadcast(const Stream& ready, Tensor data, int root) = 0;
  // Part i of input (size * n) goes to rank i; part j of output came from rank j.
  virtual Work all_to_all(const Stream& ready, Tensor input, Tensor output) = 0;
  // Sends and receives as one fused operation: no transfer waits for another of the same call.
  virtual Work exchange(const Stream& ready, std::vector<Transfer> transfers) = 0;
  // Whether exchanges of tensors on such a device run one after another, whatever their peers.
  // False: only transfers between the same two ranks in the same direction do. Then transfers with
  // other ranks may also be made by calls with one transfer each, so that each has a Work of its
  // own. A rank's transfers with itself take one call with as many sends as receives.
  virtual bool exchanges_in_order(DeviceKind /*device*/) const { return false; }
  virtual Work barrier() = 0;

  // Returns GPU memory of the kind that the backend can share among ranks, for allocate_carried, or
  // nullptr where the backend has no such memory.
  virtual Buffer backend_memory(std::size_t bytes);
  // Collective: either all ranks of the communicator register or none does. Registers such memory
  // with the backend, which then needs no copies of its own there. The registration lasts until the
  // result is released, which must happen before the communicator and the memory end. Returns
  // nullptr if no rank registers, which is also the case if the backend has no use for it.
  virtual std::shared_ptr<void> register_memory(const Buffer& memory, std::size_t bytes);

  // Blocking. True if `ok` is true on every rank. All ranks get the same result.
  bool agree(bool ok);
  // Blocking, in place, over host values. Takes the element types of all_reduce.
  template <class T>
  void all_reduce_host(std::span<T> values, ReduceOp op) {
    all_reduce(Stream(), Tensor::wrap(values), op).wait_host();
  }
  template <class T>
  T all_reduce_host(T value, ReduceOp op) {
    all_reduce_host(std::span<T>(&value, 1), op);
    return value;
  }
  // Blocking. Returns the root's `text` on every rank.
  std::string broadcast_text(std::string text, int root = 0);

  // Blocking. Runs `read` on rank 0 alone and returns its result on every rank. If it throws, all
  // ranks throw the same error. For files that all ranks need and one rank reads.
  std::string read_once(const std::function<std::string()>& read);

  // Returns a pointer to an MPI_Comm of this group that carries no other traffic (for parallel
  // HDF5). The first call creates it and is therefore collective.
  virtual const void* native_mpi() const = 0;
};

// Collective over each carrier in turn, with the same number of bytes on all of its ranks. Returns
// a tensor with undefined contents, in the memory that suits `carriers` best: where their backend
// can share memory among ranks, the memory is of that kind and is registered with each carrier.
// Meant for tensors that live long and are communicated often. `allocator` counts the memory; the
// tensor is on its device. Release the tensor before the carriers end. Its memory is freed when the
// device is done with it; with an exception in flight nothing is waited for. Throws
// OutOfMemoryError.
Tensor allocate_carried(const std::vector<Communicator*>& carriers, Allocator& allocator,
                        const Stream& stream, const Shape& shape, DType dtype, MemoryUse use);

}  // namespace trireme
