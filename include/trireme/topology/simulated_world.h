// Many ranks in one process and in virtual time. They run the same tasks as in production.
//
// A message flows once both ends have posted it and its latency has passed. Messages that are in
// flight share the links on their routes max-min fairly: no message could be faster without a
// slower one becoming slower still (D. Bertsekas, R. Gallager, Data Networks, 1992, section 6.5.2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/comm/segments.h"
#include "trireme/comm/task.h"
#include "trireme/comm/transport.h"
#include "trireme/topology/network.h"

namespace trireme {

// What things cost a rank, in seconds.
struct SimulatedCosts {
  double latency = 0.0;  // of a message, where the network does not say
  double message = 0.0;  // of posting a message, at each end; the rank does nothing else meanwhile
  double reduced_byte = 0.0;  // of each byte of a contribution that is added
  double copied_byte = 0.0;
};

class SimulatedWorld {
 public:
  struct Options {
    SimulatedCosts costs = {};
    // True: memory is real, and messages carry its contents. False: workspace() returns addresses
    // that nobody can access, and tensor() makes tensors of such memory. So thousands of ranks need
    // hardly any memory.
    bool contents = true;
    // If given, the order of events is drawn from it: latencies, the order of simultaneous events,
    // now and then a rank or a message that is late by far. Tasks are then also asked to advance
    // while their messages are under way, and the contents of a message may leave when it is posted
    // or when it arrives. The same seed gives the same run.
    std::optional<std::uint64_t> seed = std::nullopt;
    std::size_t segment_bytes = std::size_t{32} << 20;
    std::size_t worthwhile_bytes = kWorthwhileBytes;
    // A message of at most this size leaves its sender at once, whether or not it is received.
    std::size_t eager_bytes = 0;
    std::shared_ptr<const RankBlocks> blocks = {};  // what the transports say of the ranks
  };
  struct Result {
    double seconds = 0.0;              // until the last rank was done
    std::uint64_t messages = 0;        // of all ranks
    std::uint64_t bytes = 0;           // of all ranks
    std::uint64_t worst_messages = 0;  // sent by the rank that sends most
    std::uint64_t worst_bytes = 0;
    std::uint64_t worst_workspace = 0;  // peak bytes of the rank that needs most
    std::vector<double> link_bytes;     // by link of the network
  };
  using MakeTask = std::function<std::unique_ptr<Task>(TransportPtr)>;

  // The network must outlive the world.
  SimulatedWorld(const Network& network, Options options);
  ~SimulatedWorld();

  // Runs the tasks of the ranks 0 to `ranks` - 1, all at once. `make` returns the task for the
  // transport of a rank. If nothing can move any more, throws InternalError that names the waiting
  // ranks and the ranks that they wait for.
  Result run(int ranks, const MakeTask& make);

  // Makes a tensor without contents, of at most 1 TiB, or less where the process may have fewer
  // addresses. It may be used as long as this world lives.
  Tensor tensor(std::int64_t elements, DType dtype) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
