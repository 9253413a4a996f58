// How often a run writes a checkpoint, and the time that it keeps free for one.
#pragma once

#include <cstdint>

namespace trireme {

// Returns the seconds of computation between two checkpoints that lose the least time, where
// writing one takes `write` seconds and failures come every `between_failures` seconds on average.
// This is equation 37 of Daly, "A higher order estimate of the optimum checkpoint interval for
// restart dumps", Future Generation Computer Systems 22 (2006), whose first term is Young's.
double best_checkpoint_interval(double write, double between_failures);

// The same in steps of `step` seconds; at least 1. This is the rule of checkpoint.every auto.
std::int64_t best_steps_between_checkpoints(double write, double between_failures, double step);

// The seconds that a start takes a checkpoint of so many bytes for until it has written one: those
// of a disk that is not fast.
double guessed_checkpoint_seconds(double bytes);

// A checkpoint may take this many times as long as the longest so far: a run keeps that much free
// before its job's end.
inline constexpr double kSlowestCheckpoint = 1.5;

}  // namespace trireme
