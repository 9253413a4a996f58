// Collective operations composed of point-to-point messages, as tasks of the progress engine.
//
// Messages between two ranks are matched in the order in which they are posted. So every task
// receives from a peer in the order in which that peer sends to it.
#pragma once

#include <functional>
#include <memory>

#include <mpi.h>

#include "trireme/comm/communicator.h"

#include "task.h"

namespace trireme {

// What a task needs to know of its communicator.
struct Wire {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int tag = 0;
  bool synchronous = false;                           // rendezvous sends only
  Allocator* workspace = nullptr;                     // of the runtime
  std::size_t segment_bytes = std::size_t{32} << 20;  // size of the segments of a reduction
  std::size_t piece_bytes = std::size_t{1} << 30;  // longer messages are cut: MPI counts are ints
};

// All reductions except the library's add along the tree T(size) (sum_tree.h), with the same bits.
//
// One phase: each rank receives the whole buffer of every rank and reduces them.
std::unique_ptr<Task> make_direct_all_reduce(const Wire& wire, Tensor data, ReduceOp op);
// Two phases: reduce-scatter, then all-gather.
std::unique_ptr<Task> make_pairwise_all_reduce(const Wire& wire, Tensor data, ReduceOp op);
// log2(size) rounds bring the whole buffers of all ranks to every rank, which reduces them.
std::unique_ptr<Task> make_bruck_all_reduce(const Wire& wire, Tensor data, ReduceOp op);
// log2(size) rounds, in each of which two ranks exchange partial results of the whole buffer
// (DoublingPlan).
std::unique_ptr<Task> make_doubling_all_reduce(const Wire& wire, Tensor data, ReduceOp op);
std::unique_ptr<Task> make_reduce_scatter(const Wire& wire, Tensor input, Tensor output,
                                          ReduceOp op);
std::unique_ptr<Task> make_all_gather(const Wire& wire, Tensor input, Tensor output);
// log2(size) rounds.
std::unique_ptr<Task> make_bruck_all_gather(const Wire& wire, Tensor input, Tensor output);
std::unique_ptr<Task> make_all_to_all(const Wire& wire, Tensor input, Tensor output);
// Binomial tree.
std::unique_ptr<Task> make_broadcast(const Wire& wire, Tensor data, int root);
// Dissemination: log2(size) rounds.
std::unique_ptr<Task> make_barrier(const Wire& wire);
std::unique_ptr<Task> make_transfer(const Wire& wire, const Transfer& transfer);

// MPI's own algorithm: `start` posts it. The tensors live until it is done.
std::unique_ptr<Task> make_library_task(std::function<int(MPI_Request*)> start, Tensors tensors);

}  // namespace trireme
