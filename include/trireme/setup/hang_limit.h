// How long an operation may be in flight before the run counts as hung (comm.timeout).
#pragma once

#include <cstdint>
#include <optional>

namespace trireme {

// Every rank is given the same numbers, so every rank has the same limit.
class HangLimit {
 public:
  static constexpr double kUnmeasured = 600;  // seconds, until kMeasured steps have been measured
  static constexpr double kLeast = 120;       // seconds
  static constexpr double kLongestSteps = 20;
  static constexpr int kMeasured = 3;
  static constexpr double kUnmeasuredRate = 50e6;  // bytes/s of a file system, until measured
  static constexpr double kTimesSlower = 4;        // times the duration at the slowest rate so far

  // With nullopt the limit follows the measured steps: kLongestSteps times the longest step, at
  // least kLeast, and kUnmeasured until kMeasured steps are known.
  explicit HangLimit(std::optional<double> fixed_seconds = {}) : fixed_(fixed_seconds) {}

  void step_took(double seconds);
  // A checkpoint of `bytes` bytes was written, synced to disk and read back in `seconds`.
  void checkpoint_took(std::int64_t bytes, double seconds);

  // The limit for the operations of a step.
  double seconds() const;
  // The limit while a checkpoint of `bytes` bytes is written or read, when ranks wait for the file
  // system as well: seconds() plus kTimesSlower times what the bytes take at the slowest rate so
  // far.
  double seconds_with_checkpoint(std::int64_t bytes) const;

 private:
  std::optional<double> fixed_;
  double longest_step_ = 0;
  int steps_ = 0;
  std::optional<double> slowest_rate_;  // bytes/s
};

}  // namespace trireme
