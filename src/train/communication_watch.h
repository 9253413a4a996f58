// Writes communication.json: what carries the collectives of this rank, and how fast.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/parallel/stage.h"
#include "trireme/report/communication_table.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/planner.h"

#include "train/algorithm_tuner.h"

namespace trireme {

// The leading rank has one.
class CommunicationWatch {
 public:
  // `network` is what the communicators were planned for. `tuner` may be nullptr.
  CommunicationWatch(Runtime& runtime, const parallel::Stage& stage, NetworkOfJob network,
                     Config::Comm comm, const AlgorithmTuner* tuner, std::string file);

  // Writes the file. The collectives are among the last operations that the flight recorder knows.
  // A failure is told once, in a line.
  void write();
  CommunicationTable table();

  // The row of the start-up table: where the rates are from. Empty if algorithms are the default.
  std::string row() const;
  // The same for the events, and what the largest communicator of the grid uses.
  std::string text(const std::string& carrier) const;

 private:
  std::string source() const;
  using Key = std::tuple<int, Collective, std::size_t, Algorithm>;  // a lane and what it carries

  const Prediction& predict(const PlannedComm& communicator, const Key& key);

  Runtime& runtime_;
  const parallel::Stage& stage_;
  NetworkOfJob network_;
  Config::Comm comm_;
  const AlgorithmTuner* tuner_;
  std::string file_;
  std::map<int, std::unique_ptr<PredictedNetwork>> networks_;  // by lane
  std::map<Key, Prediction> predictions_;
  bool failed_ = false;
};

}  // namespace trireme
