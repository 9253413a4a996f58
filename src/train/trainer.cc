#include "trireme/train/trainer.h"

#include <utility>

#include "trireme/setup/hang_limit.h"

#include "train/prepared_run.h"
#include "train/training_loop.h"

namespace trireme {

ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals,
                 std::optional<ComputeDevice> device) {
  runtime.set_timeout(HangLimit(config.comm.timeout).seconds());
  PreparedRun run(plan_run(runtime, config, std::move(device)));
  return TrainingLoop(run, signals).run();
}

}  // namespace trireme
