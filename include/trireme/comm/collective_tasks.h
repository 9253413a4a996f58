// Collective operations composed of messages, as tasks over any transport. A task that is destroyed
// before it is done abandons its messages (Transport::abandon).
#pragma once

#include <memory>
#include <span>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/task.h"
#include "trireme/comm/transport.h"

namespace trireme {

// What a collective works on. all_reduce and broadcast work in place, on `output`. The others read
// `input` and write `output`, with the shapes of Communicator's functions.
struct Operands {
  Tensor input{}, output{};
  ReduceOp op = ReduceOp::kSum;  // of reductions
  int root = 0;                  // of a broadcast
};

// Returns the algorithms that make_collective knows for a collective, its default first; none for
// kExchange. Each suits any number of ranks and any size.
std::span<const Algorithm> algorithms_of(Collective collective);

// Makes the task of a collective other than kExchange. An algorithm that is not among
// algorithms_of(collective) stands for the default.
std::unique_ptr<Task> make_collective(Collective collective, Algorithm algorithm,
                                      TransportPtr transport, Operands operands);
std::unique_ptr<Task> make_barrier(TransportPtr transport);
// One side of an exchange.
std::unique_ptr<Task> make_transfer(TransportPtr transport, Transfer transfer);

}  // namespace trireme
