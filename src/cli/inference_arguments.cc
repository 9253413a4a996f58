#include "cli/inference_arguments.h"

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/config/config.h"
#include "trireme/train/hang_limit.h"
#include "trireme/train/inference.h"
#include "trireme/train/run_grid.h"

namespace trireme::cli {

void declare_inference(Options& options, InferenceArguments& given) {
  options.add("checkpoint", given.checkpoint, "",
              "a run's folder (its newest good checkpoint), or one checkpoint");
  options.add("threads", given.device.threads, "threads per rank",
              "auto: the cores that this rank was granted", between(1, limits::kThreads));
  options.add("device", given.device.device, "",
              "where to compute; auto: on GPUs where every rank sees one, else on CPUs",
              one_of({"auto", "cpu", "cuda"}));
  options.add("precision", given.precision, "",
              "type of activations and matrix products; auto: as in training (after tf32: fp32)",
              one_of({"fp32", "tf32", "bf16", "fp16"}));
  add_dimension_keys(options, given.grid);
  add_shard_keys(options, given.shard);
  options.add("comm.backend", given.device.backend, "",
              "what carries tensors between ranks; as in training",
              one_of({"auto", "mpi", "nccl"}));
  options.add(
      "comm.timeout", given.timeout, "seconds",
      "an operation under way for longer is a hang; while the checkpoint is read its bytes add "
      "to that",
      between(1e-3, limits::kSeconds));
}

void check_inference(const InferenceArguments& given) {
  if (given.checkpoint.empty()) {
    throw ConfigError(
        "--checkpoint is missing: name a run's folder or a checkpoint, as in --checkpoint run");
  }
}

void allow_time_to_load(Runtime& runtime, const InferenceArguments& given) {
  runtime.set_timeout(given.timeout);
  const std::int64_t bytes = largest_checkpoint_bytes(runtime.world(), given.checkpoint);
  runtime.set_timeout(HangLimit(given.timeout).seconds_with_checkpoint(bytes));
}

GridShape inference_grid(const InferenceArguments& given, int ranks) {
  return with_shards(resolve_grid(given.grid, ranks), given.shard);
}

ComputeDevice inference_device(const InferenceArguments& given, Runtime& runtime) {
  DeviceRequest request = given.device;
  request.tf32 = given.precision == "tf32";
  return choose_compute_device(runtime, request);
}

}  // namespace trireme::cli
