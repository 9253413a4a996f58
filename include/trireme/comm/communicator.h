// A group of ranks that act together. One interface; backends `self` (one rank), `mpi`, `nccl`.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/work.h"
#include "trireme/tensor/tensor.h"

namespace trireme {

enum class ReduceOp { kSum, kMax, kMin };

// One message of an exchange. Messages between two ranks of a communicator arrive in the order in
// which they were sent.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int peer;  // rank in the communicator
  Tensor tensor;
};

// Every operation is collective over the communicator, called by its ranks in the same order, and
// returns at once; `ready` is the stream after whose work so far the input may be read and the
// output written. Tensors stay untouched by the caller until the Work is done. The tensors of an
// operation are all of the host or all of the GPU that Runtime::use_device names, whose stream
// `ready` is then; anything else throws InternalError.
//
// Reductions add along one tree over the ranks, T(size) (src/comm/README.md, "Order of sums"), in
// fp32 for bf16 and fp16, and in the own type otherwise, and round once: the result has the same
// bits on every rank, wherever the ranks run, and whichever of our algorithms the table names. Of
// tensors on a GPU that NCCL carries less holds: the same bits on every rank, and from run to run
// on the same grid, GPUs and links with the same NCCL and its algorithm; the order, and where bf16
// and fp16 are rounded on the way, are NCCL's.
//
// Where NCCL carries tensors, hosts enter operations on the GPU and wait for MPI in the same
// program order on all ranks, from one thread: both need the peers' hosts (src/comm/README.md).
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;   // "world", "tensor", ...; for messages
  virtual int world_rank(int member) const = 0;  // world rank of a rank of this communicator
  virtual int lane_id() const = 0;               // the same number on all members; 0 is the world

  // Whether a sum over tensors of such a device follows from the contributions alone, so that
  // another communicator of as many ranks gives the same bits. Not where a library carries it.
  virtual bool fixes_order_of_sums(DeviceKind device) const = 0;

  // In place.
  virtual Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) = 0;
  // output (n) = this rank's n elements of the reduction of all inputs (size * n).
  virtual Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) = 0;
  // output (size * n) = the inputs (n) of all ranks, in rank order. input may be output's own part.
  virtual Work all_gather(const Stream& ready, Tensor input, Tensor output) = 0;
  virtual Work broadcast(const Stream& ready, Tensor data, int root) = 0;
  // Part i of input (size * n) goes to rank i; part j of output came from rank j.
  virtual Work all_to_all(const Stream& ready, Tensor input, Tensor output) = 0;
  // Sends and receives as one fused operation: none waits for another of the same call.
  virtual Work exchange(const Stream& ready, std::vector<Transfer> transfers) = 0;
  virtual Work barrier() = 0;

  // For allocate_carried. Memory of the GPU, of the kind that the backend can share among ranks;
  // nullptr where it has none of its own.
  virtual Buffer backend_memory(std::size_t bytes);
  // Tells the backend of such memory, so that it needs no copies of its own there. Lasts until let
  // go of, before the communicator and the memory end. Collective: all ranks of the communicator
  // register, or none does; nullptr then, as where the backend has no use for it.
  virtual std::shared_ptr<void> register_memory(const Buffer& memory, std::size_t bytes);

  // Blocking. True where every rank said true: all ranks reach the same verdict.
  bool agree(bool ok);
  // Blocking, in place, over host values. The element types of all_reduce.
  template <class T>
  void all_reduce_host(std::span<T> values, ReduceOp op) {
    all_reduce(Stream(), Tensor::wrap(values), op).wait_host();
  }
  template <class T>
  T all_reduce_host(T value, ReduceOp op) {
    all_reduce_host(std::span<T>(&value, 1), op);
    return value;
  }
  // Blocking; `text` of the root on every rank.
  std::string broadcast_text(std::string text, int root = 0);

  // Blocking. What `read` gives on rank 0, where alone it runs, on every rank; what it throws there
  // is thrown on all, alike. For files that all ranks need and one reads.
  std::string read_once(const std::function<std::string()>& read);

  // Points at an MPI_Comm of this group that carries no other traffic (for parallel HDF5). Made
  // when it is first asked for: collective then.
  virtual const void* native_mpi() const = 0;
};

// A tensor, contents undefined, in memory that `carriers` carry best: where their backend can share
// memory among ranks, of that kind and registered with each. For what lives long and is
// communicated often; `allocator`, whose device it is on, counts it. Let go of before the carriers
// end. The memory goes back when the device is done with it; with an exception in flight nobody is
// waited for. Collective over each carrier in turn, with as many bytes on all of its ranks. Throws
// OutOfMemoryError.
Tensor allocate_carried(const std::vector<Communicator*>& carriers, Allocator& allocator,
                        const Stream& stream, const Shape& shape, DType dtype, MemoryUse use);

}  // namespace trireme
