// A scaling study as data: what was run, what was measured, and what follows from it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/report/time_shares.h"
#include "trireme/tasks/unit.h"

namespace trireme::scaling {

// Strong: the same global batch on every number of nodes. Weak: a batch that grows with them.
enum class Mode { kStrong, kWeak };
std::string_view name_of(Mode mode);  // "strong"

// One run of a study.
struct Point {
  Mode mode = Mode::kStrong;
  int nodes = 1;
  int ranks = 1;
  GridShape grid;
  int repeat = 1;  // from 1

  std::string name() const;  // "strong-n2-d4p1t1-r1", also the name of its folder
  bool operator==(const Point&) const = default;
};

// The measurements of one run: means over its measured steps, in seconds per step. Only the time
// that a rank waits for communication or data counts; each is the slowest rank's.
struct Measurement {
  tasks::Unit unit = {};          // of progress
  double units_per_second = 0.0;  // of the whole run, without checkpoints
  double step_seconds = 0.0;
  double communication_seconds = 0.0;
  double data_seconds = 0.0;
  double checkpoint_seconds = 0.0;  // of one checkpoint / steps between two
  double memory_bandwidth = 0.0;    // bytes/s, sum over all ranks at once
  int steps = 0;

  bool operator==(const Measurement&) const = default;
};

// What a run was made with, and what it ran on. Text that could not be found out is "not known".
struct Conditions {
  std::string program;             // "trireme 1.0.0"
  std::string processor;           // model and number of logical processors; one for each kind
  std::string device;              // "cpu", or the model of the GPUs
  std::string mpi;                 // "MPICH 4.0.2"
  std::string network;             // what is known about it
  std::string launcher;            // of the study: "srun", "mpiexec", "sbatch"
  std::string job;                 // its id in Slurm; empty: none
  std::vector<std::string> hosts;  // by node
  // That all ranks together can use: nodes on one machine share its processors, and each may have a
  // quota. 0: not known, or ranks compute on GPUs.
  double processors = 0.0;

  bool operator==(const Conditions&) const = default;
};

struct PointResult {
  Point point;
  Measurement measured;
  std::optional<Conditions> conditions = {};  // nullopt: an earlier version recorded none
};

// Mean of repeats. half_width is half the width of the 95 % confidence interval by Student's t;
// nullopt for a single repeat, which says nothing about its spread.
struct Estimate {
  double mean = 0.0;
  std::optional<double> half_width;
};
Estimate estimate(std::span<const double> repeats);

// Returns the two-sided 95 % quantile of Student's t distribution; degrees >= 1.
double student_t(int degrees);

// What a planner said of the rate at one number of nodes, in units/s: nine of ten lie within.
struct Predicted {
  double rate = 0.0, low = 0.0, high = 0.0;
};

// All repeats at one number of nodes. Speedup and efficiency are relative to the fewest nodes of
// the series: speedup = rate / rate there, efficiency = speedup / (nodes / nodes there).
struct NodeCount {
  int nodes = 1;
  int ranks = 1;
  GridShape grid;
  int repeats = 0;
  double processors = 0.0;    // as in Conditions; 0 if a repeat does not know it
  Estimate rate;              // units/s
  Estimate memory_bandwidth;  // bytes/s
  Estimate speedup, efficiency;
  TimeShares shares;  // of the time from one step to the next
  // Gain per node added since the previous count; nullopt for the first.
  std::optional<double> added_rate, added_bandwidth;
  std::optional<Predicted> predicted = {};
};

// rate(n) = one_node * n / (1 + contention * (n - 1) + coherency * n * (n - 1)): Gunther's
// universal scalability law (Guerrilla Capacity Planning, 2007, chapter 4); with coherency = 0 it
// is Amdahl's, with contention as the serial part. n counts nodes.
struct Law {
  double one_node = 0.0;  // units/s
  double contention = 0.0;
  double coherency = 0.0;
  double error = 0.0;  // root mean square of (fitted / measured - 1)

  double rate(double nodes) const;
  // Returns the knee: the number of nodes beyond which one more makes training slower. nullopt
  // without coherency.
  std::optional<double> peak() const;
  // Returns the number of nodes at which each node is half as fast as one node alone. nullopt for a
  // law without loss.
  std::optional<double> half_efficiency() const;
};

// The fits minimize the sum of squared relative errors, with contention and coherency of at least
// 0. They return nullopt with fewer than two different numbers of nodes (universal: three).
struct RateAt {
  double nodes = 1.0, rate = 0.0;
};
std::optional<Law> fit_amdahl(std::span<const RateAt> measured);
std::optional<Law> fit_universal(std::span<const RateAt> measured);

// No law is fitted where the 95 % confidence interval of the rate, at any number of nodes, reaches
// further from the mean than this share of it.
inline constexpr double kWideScatter = 0.10;

// The results of one mode and one grid of a replica, by number of nodes.
struct Series {
  Mode mode = Mode::kStrong;
  GridShape replica;              // the grid with 1 as its data dimension
  tasks::Unit unit = {};          // of its rates
  std::vector<NodeCount> counts;  // by nodes
  std::optional<Law> amdahl, universal;
  std::vector<std::string> remarks;  // why a fit is missing, or how far to trust it

  std::string name() const;  // "strong, pipeline 1 x tensor 2"
};

// Returns the series in the order in which their first points appear. Points without a measurement
// are absent. A series whose replica needs more ranks than the fewest nodes have begins with what
// data parallelism alone reached there; no law is fitted to that.
std::vector<Series> analyse(std::span<const PointResult> results);

// Returns the cost of a billion units at the measured rate, without checkpoints.
double node_hours_per_billion(const NodeCount& count);

// Returns one line: up to how many nodes the parallel efficiency is at least `least` (0 to 1), the
// cost of training there and at the fewest nodes, and whether the scatter of the repeats leaves
// that open. Numbers of nodes beyond the first that is not efficient do not count. `series` has at
// least one number of nodes.
std::string verdict_of(const Series& series, double least);

}  // namespace trireme::scaling
