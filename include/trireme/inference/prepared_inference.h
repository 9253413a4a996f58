// What eval, generate and predict compute with, from the device to the weights.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/inference/inference.h"
#include "trireme/io/checkpoint.h"
#include "trireme/setup/compute_device.h"

namespace trireme {

struct InferenceRequest {
  std::string checkpoint;  // as open_checkpoint_or_run takes it
  GridRequest grid;
  std::string order = "auto";    // grid.order
  std::string network = "auto";  // comm.network
  Config::Shard shard;
  DeviceRequest device;
  std::optional<std::string> precision;
  std::string weights = "last";  // or "average"
  double timeout = 600;          // seconds after which an operation is a hang
};

struct InferenceUse {
  int micro = 1;  // samples that a replica computes at a time
  // Whether outputs are wanted, as by predict, and not the loss of an evaluation. Masked texts are
  // taken to be as long as the model's context, with as many masks as in training.
  bool predicts = false;
  // Throws where the command cannot use such a model; nothing has been read of its weights.
  std::function<void(const InferencePlan&)> check = [](const InferencePlan&) {};
};

// The parts are made in the order in which they stand here, each from those before it.
struct PreparedInference {
  // Collective over the world; before any process group is made. While the weights are read, the
  // hang limit is what their bytes allow. Communicators are planned for the network, and ranks take
  // the places of the grid by what an evaluation or a prediction sends; rank 0 reports the order
  // where it is not the launcher's. Throws ConfigError where the grid does not fit the ranks or the
  // model, or where memory does not suffice, and the errors of open_checkpoint_or_run,
  // InferencePlan and InferenceModel.
  PreparedInference(Runtime& ranks, const InferenceRequest& wanted, const InferenceUse& use);
  PreparedInference(const PreparedInference&) = delete;
  PreparedInference& operator=(const PreparedInference&) = delete;

  Runtime& runtime;
  GridShape shape;
  ComputeDevice device;
  Checkpoint checkpoint;
  InferencePlan plan;
  ProcessGrid grid;
  InferenceModel model;

 private:
  GridShape allow_time_and_resolve(const InferenceRequest& wanted) const;
  InferencePlan make_plan(const InferenceRequest& wanted, const InferenceUse& use) const;
  std::vector<int> place(const InferenceRequest& wanted, const InferenceUse& use) const;
};

}  // namespace trireme
