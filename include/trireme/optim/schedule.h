// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::optim {

enum class LearningRateCurve {
  kConstant,
  kLinear,
  kCosine,
  kCosineRestarts,
  kStep,
  kWsd,
  kInverseSqrt,
  kTable
};

struct LearningRateCurveKind {
  LearningRateCurve curve;
  std::string_view name;               // of schedule.name
  std::vector<std::string_view> keys;  // schedule.KEY: the others do nothing with this curve
  double least = 0.0;                  // schedule.least where it is not given

  bool has(std::string_view key) const;
};
const std::vector<LearningRateCurveKind>& learning_rate_curves();
const LearningRateCurveKind& curve_kind(LearningRateCurve curve);
// The names of schedule.name.
std::vector<std::string> learning_rate_curve_names();
// The curve named by schedule.name. Throws ConfigError for other names.
LearningRateCurve learning_rate_curve(const std::string& name);

// A line of a table: the part of the peak that the rate of a step is.
struct LearningRatePoint {
  std::int64_t step = 0;  // as users count them: the first is 1
  double part = 0.0;      // 0 to 1
  bool operator==(const LearningRatePoint&) const = default;
};

struct LearningRateOptions {
  LearningRateCurve curve = LearningRateCurve::kCosine;
  double peak = 1e-3;                  // optim.lr
  std::int64_t total_steps = 1;        // run.steps
  std::optional<std::int64_t> warmup;  // schedule.warmup; empty: a tenth of the run, at most 100
  std::optional<std::int64_t> decay;   // schedule.decay: see LearningRateSchedule
  double factor = 0.1;                 // schedule.factor: the step curve's, above 0, at most 1
  std::optional<double> least = {};    // schedule.least: a part of the peak, 0 to 1
  std::optional<std::int64_t> period = {};     // schedule.period, which cosine_restarts needs
  std::int64_t period_factor = 1;              // schedule.period_factor
  std::vector<LearningRatePoint> points = {};  // of schedule.file (learning_rate_table.h)
};

// Steps count from 0 to T - 1. With peak p, warm-up of W steps, decay of D steps and floor l, which
// is schedule.least (default: cosine 0.1, the others 0):
//
//   warm-up   t < W:  p (t + 1) / W, so that step W - 1 is the first at the peak, whatever l is
//   and for t >= W, with u = min(1, (t - W) / D) and h(u) = (1 + cos(pi u)) / 2:
//   constant  p                          no floor
//   linear    p (l + (1 - l) (1 - u))    D: T - W, so that step T would be the first at p l
//   cosine    p (l + (1 - l) h(u))       D: T - W (with l = 0.1 Brown et al., "Language models are
//                                        few-shot learners", 2020)
//   cosine_restarts
//             p (l + (1 - l) h(v))       v: the part of its period that lies before t; periods of
//                                        P, P F, P F^2, ... steps follow each other
//                                        (schedule.period and .period_factor), each begins at p and
//                                        would end at p l (Loshchilov and Hutter, "SGDR", 2017)
//   step      p max(l, factor^floor((t - W) / D))
//                                        D: a third of T - W, at least 1 (with factor 0.1 He et
//                                        al., "Deep residual learning", 2016)
//   wsd       p until t = T - D, then p (l + (1 - l) (T - t) / D): warm-up, stable, decay
//                                        D: a fifth of T - W, at least 1 (Hu et al., "MiniCPM",
//                                        2024)
//   inverse_sqrt
//             p max(l, sqrt(W / (t + 1)))  goes on from the warm-up's last step; W counts as 1
//                                        where there is none (Vaswani et al., "Attention is all you
//                                        need", 2017, whose steps count from 1; scaled to peak p)
//   table     p times the part at t + 1, linear between the points, and beyond the first and the
//             last of them as there; neither warm-up nor floor
//
// The list gives D for the case that schedule.decay is not given.
class LearningRateSchedule {
 public:
  // Throws ConfigError if the warm-up or the decay does not fit into the run, or a needed period is
  // missing. A table may still lack its points; at() then throws InternalError.
  explicit LearningRateSchedule(LearningRateOptions options);

  // The learning rate of step `step` >= 0. Steps from total_steps on use the same formula.
  double at(std::int64_t step) const;

  std::int64_t warmup() const { return warmup_; }  // steps
  std::int64_t decay() const { return decay_; }    // steps
  double least() const { return least_; }          // part of the peak

 private:
  void check() const;
  double part_of_peak(std::int64_t step) const;
  double part_of_period(std::int64_t after) const;
  double above_floor(double part) const { return least_ + (1.0 - least_) * part; }

  LearningRateOptions given_;
  std::int64_t total_, warmup_, decay_;
  double least_;
};

}  // namespace trireme::optim
