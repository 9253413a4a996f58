// Limits of gradients that do not follow from the norm of all of them.
#pragma once

#include <map>
#include <optional>

#include "trireme/optim/parameter_sums.h"
#include "trireme/parallel/stage.h"

namespace trireme::parallel {

class GradientClip {
 public:
  // Collective over the stage's ranks if there is a limit to each parameter. The largest value of
  // an element and the largest norm of a parameter's gradient; 0: no limit. `stage` outlives it.
  GradientClip(const Stage& stage, float value, float norm_of_each);

  // Limits the reduced gradients. Collective over the ranks that hold parts of the same parameters,
  // if there is a limit to each: they get the same factors.
  void run(ops::Context& ctx) const;

 private:
  void clip_each(ops::Context& ctx) const;

  const Stage& stage_;
  float value_, norm_;
  std::optional<optim::ParameterSums> sums_;              // nothing: no limit to each
  std::map<const nn::Parameter*, std::int64_t> numbers_;  // in the stage
};

}  // namespace trireme::parallel
