#include "cli/inference_arguments.h"

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/config/config.h"

namespace trireme::cli {

void declare_weights(Options& options, std::string& weights) {
  options.add("weights", weights, "",
              "last: those of the checkpoint's step; average: their average (optim.average)",
              one_of({"last", "average"}));
}

void declare_inference(Options& options, InferenceRequest& given) {
  options.add("checkpoint", given.checkpoint, "",
              "a run's folder (its newest good checkpoint), or one checkpoint");
  declare_weights(options, given.weights);
  options.add("threads", given.device.threads, "threads per rank",
              "auto: the cores that this rank was granted", between(1, limits::kThreads));
  options.add("device", given.device.device, "",
              "where to compute; auto: on GPUs where every rank sees one, else on CPUs",
              one_of({"auto", "cpu", "cuda"}));
  options.add("precision", given.precision, "",
              "type of activations and matrix products; auto: as in training (after tf32: fp32)",
              one_of({"fp32", "tf32", "bf16", "fp16"}));
  add_dimension_keys(options, given.grid);
  options.add(
      "grid.order", given.order, "",
      "which rank takes which place of the grid, as in trireme train; auto: on several nodes, the "
      "order whose traffic is cheapest on the network",
      not_empty());
  add_shard_keys(options, given.shard);
  options.add("comm.backend", given.device.backend, "",
              "what carries tensors between ranks; as in training",
              one_of({"auto", "mpi", "nccl"}));
  options.add(
      "comm.network", given.network, "",
      "what the algorithms of collectives are chosen for, as in trireme train: auto, none, or "
      "files",
      not_empty());
  options.paths({"checkpoint", "grid.order"});
  options.paths({"comm.network"}, PathForm::kList);
  options.add(
      "comm.timeout", given.timeout, "seconds",
      "an operation under way for longer is a hang; while the checkpoint is read its bytes add "
      "to that",
      between(1e-3, limits::kSeconds));
}

void check_inference(const InferenceRequest& given) {
  if (given.checkpoint.empty()) {
    throw ConfigError(
        "--checkpoint is missing: name a run's folder or a checkpoint, as in --checkpoint run");
  }
}

}  // namespace trireme::cli
