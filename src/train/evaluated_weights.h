// The weights and running statistics that evaluations and checkpoints have where steps have others.
#pragma once

#include <cstdint>

#include "train/prepared_run.h"

namespace trireme {

class EvaluatedWeights {
 public:
  // `run` must outlive this object.
  explicit EvaluatedWeights(PreparedRun& run);

  // Collective over the world; no step is queued. Evaluations between the two, after step `step`,
  // have averages (eval.weights, or those of schedule_free). Both do nothing where there are none.
  void show(std::int64_t step);
  void hide();
  // Collective over the world, before a checkpoint of that step: it is to hold the statistics that
  // belong to the averages.
  void prepare_checkpoint(std::int64_t step);

 private:
  void recompute(std::int64_t step);

  PreparedRun& run_;
  bool shown_by_evaluations_;        // otherwise the weights of the step are
  int recomputed_steps_;             // 0: nothing is recomputed
  std::int64_t recomputed_at_ = -1;  // the step of the last time
};

}  // namespace trireme
