// How long an operation may be under way before the run counts as hung (comm.timeout).
#pragma once

#include <cstdint>
#include <optional>

namespace trireme {

// Every rank is given the same numbers, so every rank has the same limit.
class HangLimit {
 public:
  static constexpr double kUnmeasured = 600;  // seconds, until kMeasured steps are known
  static constexpr double kLeast = 120;       // seconds
  static constexpr double kLongestSteps = 20;
  static constexpr int kMeasured = 3;
  static constexpr double kUnmeasuredRate = 50e6;  // bytes/s of a file system, until one is known
  static constexpr double kTimesSlower = 4;        // than the slowest checkpoint so far

  // Nothing: the limit follows the measured steps. It is kLongestSteps of the longest, at least
  // kLeast, and kUnmeasured until enough are known.
  explicit HangLimit(std::optional<double> fixed_seconds = {}) : fixed_(fixed_seconds) {}

  void step_took(double seconds);
  // A checkpoint of so many bytes was written, on the disk and read back after `seconds`.
  void checkpoint_took(std::int64_t bytes, double seconds);

  // Of what a step does.
  double seconds() const;
  // While a checkpoint of so many bytes is written or read, when ranks wait for the file system as
  // well: seconds() and kTimesSlower of the time that the bytes take at the slowest rate so far.
  double seconds_with_checkpoint(std::int64_t bytes) const;

 private:
  std::optional<double> fixed_;
  double longest_step_ = 0;
  int steps_ = 0;
  std::optional<double> slowest_rate_;  // bytes/s
};

}  // namespace trireme
