// A step in virtual time: a discrete-event simulation of the streams of ranks and of the lanes of
// their communicators, which run the step programs that dry runs recorded.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/dry_rank.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/plan/network_costs.h"
#include "trireme/tensor/step_program.h"

namespace trireme::plan {

// A rank whose program is replayed. It stands for all that are like it: members of its groups that
// are not replayed do the same at the same time.
struct ReplayedRank {
  int rank = 0;                          // of the world
  const StepProgram* program = nullptr;  // must outlive the replay
  std::map<int, DryLane> lanes = {};     // of the program's communications
};

// What things cost.
struct ReplayCosts {
  // The seconds of an operation or copy on its stream.
  std::function<double(const ProgramEntry&, const std::string& name)> compute;
  // A communication. `group` is its communicator; `peer` is -1, or the other end of a message.
  std::function<CommunicationCost(const std::string& name, const DryLane& group, int rank, int peer,
                                  std::size_t bytes)>
      communicate;
  double launch = 0.0;  // of the host, to queue anything on a stream that is not its own
  // All messages of a communicator run one after another, and an exchange is one operation, as
  // with NCCL. Otherwise a lane is a communicator or, for messages, a peer and a direction.
  bool in_order = false;
  // A message is on its way when it was sent, whether or not the other end waits for it.
  bool eager = false;
  // Where ranks have no core for communication, or it takes multiprocessors: the speed of
  // computation while a communication of its rank is in flight, and that of a communication within
  // the node while a rank that takes part in it computes. 1: as if alone.
  double beside_communication = 1.0;
  double beside_computation = 1.0;
};

// The time of a rank's computing stream in a step: the host's, or on a GPU that with most to do.
struct RankTimes {
  double compute = 0.0;  // seconds, as long as it takes alone
  double slowed = 0.0;   // seconds more, since communication was in flight
  // Waiting for communication that is under way, by the name of the communicator: exposed.
  std::map<std::string, double> exposed;
  // Waiting for others, which have not begun their part; in a pipeline, its bubble.
  std::map<std::string, double> late;
  double end = 0.0;  // when the rank had done all that it queued

  double all_exposed() const;
  double all_late() const;
};

struct Replay {
  double seconds = 0.0;          // from the start to the end of the last rank
  std::vector<RankTimes> ranks;  // as they were given
};

// Replays the programs together. With `traces`, sets what each rank did, as its flight recorder
// would tell it, for the same page of a browser as a real run's. Throws InternalError if ranks wait
// for each other for ever, and names what they wait for.
Replay replay(const std::vector<ReplayedRank>& ranks, const ReplayCosts& costs,
              std::vector<Trace>* traces = nullptr);

}  // namespace trireme::plan
