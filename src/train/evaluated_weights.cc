#include "train/evaluated_weights.h"

#include <vector>

#include "trireme/config/optimizer_config.h"
#include "trireme/inference/evaluation.h"
#include "trireme/tasks/task.h"

namespace trireme {

EvaluatedWeights::EvaluatedWeights(PreparedRun& run)
    : run_(run),
      shown_by_evaluations_(run.config.eval.weights == "average" ||
                            run.step.options().optimizer.rule_averages()),
      recomputed_steps_(recomputed_steps(run.config, run.model.plan)) {}

void EvaluatedWeights::show(std::int64_t step) {
  if (!shown_by_evaluations_) return;
  run_.step.use_averages(true);
  recompute(step);
}

void EvaluatedWeights::hide() {
  if (shown_by_evaluations_) run_.step.use_averages(false);
}

void EvaluatedWeights::prepare_checkpoint(std::int64_t step) {
  if (recomputed_steps_ == 0 || recomputed_at_ == step) return;
  run_.step.use_averages(true);
  recompute(step);
  run_.step.use_averages(false);
}

// Takes the first samples of the training data, the same ones each time.
void EvaluatedWeights::recompute(std::int64_t step) {
  if (recomputed_steps_ == 0 || recomputed_at_ == step) return;
  recomputed_at_ = step;
  const auto reader =
      run_.train_data->read_steps(run_.samples_of_steps(0, recomputed_steps_),
                                  run_.config.batch.micro, read_for(run_.step.stage()));
  run_.step.recompute_states(recomputed_steps_, [&] {
    reader->read();
    return reader->micro_batches(run_.device.context);
  });
}

}  // namespace trireme
