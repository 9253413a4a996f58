// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::optim {

enum class LearningRateCurve { kConstant, kLinear, kCosine, kStep, kWsd };

// The curve named by schedule.name: "constant", "linear", "cosine", "step" or "wsd". Throws
// ConfigError for other names.
LearningRateCurve learning_rate_curve(const std::string& name);

struct LearningRateOptions {
  LearningRateCurve curve = LearningRateCurve::kCosine;
  double peak = 1e-3;                  // optim.lr
  std::int64_t total_steps = 1;        // run.steps
  std::optional<std::int64_t> warmup;  // schedule.warmup; empty: a tenth of the run, at most 100
  std::optional<std::int64_t> decay;   // schedule.decay: see LearningRateSchedule
  double factor = 0.1;                 // schedule.factor: the step curve's, above 0, at most 1
};

// Steps count from 0 to T - 1. With peak p, warm-up of W steps and decay of D steps:
//
//   warm-up   t < W:  p (t + 1) / W, so that step W - 1 is the first at the peak
//   and for t >= W, with u = min(1, (t - W) / D):
//   constant  p
//   linear    p (1 - u)                            D: T - W, so that step T would be the first at 0
//   cosine    p (0.1 + 0.45 (1 + cos(pi u)))       D: T - W; from p to p / 10 (Brown et al.,
//                                                  "Language models are few-shot learners", 2020)
//   step      p factor^floor((t - W) / D)          D: a third of T - W, at least 1 (with factor 0.1
//                                                  He et al., "Deep residual learning", 2016)
//   wsd       p until t = T - D, then p (T - t) / D: warm-up, stable, decay (Hu et al., "MiniCPM",
//                                                  2024)  D: a fifth of T - W, at least 1
//
// The table gives D for the case that schedule.decay is not given.
class LearningRateSchedule {
 public:
  // Throws ConfigError if the warm-up or the decay does not fit into the run.
  explicit LearningRateSchedule(const LearningRateOptions& options);

  // The learning rate of step `step` >= 0. Steps from total_steps on use the same formula.
  double at(std::int64_t step) const;

  std::int64_t warmup() const { return warmup_; }  // steps
  std::int64_t decay() const { return decay_; }    // steps

 private:
  double part_of_peak(std::int64_t step) const;

  LearningRateCurve curve_;
  double peak_, factor_;
  std::int64_t total_, warmup_, decay_;
};

}  // namespace trireme::optim
