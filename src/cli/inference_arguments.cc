#include "cli/inference_arguments.h"

#include "trireme/base/error.h"

namespace trireme::cli {

void declare_inference(Options& options, InferenceArguments& given) {
  options.add("checkpoint", given.checkpoint, "",
              "a run's folder (its newest good checkpoint), or one checkpoint");
  options.add("threads", given.threads, "threads per rank",
              "auto: the cores that this rank was granted", at_least(1));
  options.add("precision", given.precision, "",
              "type of activations and matrix products; auto: as in training",
              one_of({"fp32", "tf32", "bf16", "fp16"}));
  options.add("grid.data", given.grid.data, "replicas",
              "data parallelism; auto: what the other two leave of the ranks", at_least(1));
  options.add("grid.pipeline", given.grid.pipeline, "stages", "pipeline parallelism", at_least(1));
  options.add("grid.tensor", given.grid.tensor, "ranks per stage", "tensor parallelism",
              at_least(1));
  options.add("comm.timeout", given.timeout, "seconds",
              "an operation under way for longer is a hang", above(0));
}

void check_inference(const InferenceArguments& given) {
  if (given.checkpoint.empty()) {
    throw ConfigError(
        "--checkpoint is missing: name a run's folder or a checkpoint, as in --checkpoint run");
  }
}

ops::Context inference_context(const InferenceArguments& given, const Runtime& runtime) {
  return ops::make_cpu_context(given.threads.value_or(runtime.cores()));
}

}  // namespace trireme::cli
