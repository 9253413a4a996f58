// The most that options take: far beyond what is of use, and so little that no product of sizes
// leaves 64 bits before the check of memory (train/memory_check.h) has seen it.
#pragma once

namespace trireme::limits {

inline constexpr double kSteps = 1e11;
inline constexpr double kSequences = 1 << 24;  // of a step
inline constexpr double kThreads = 1024;
inline constexpr double kRanks = 1 << 20;
inline constexpr double kLayers = 4096;
inline constexpr double kWidth = 1 << 20;
inline constexpr double kHidden = 1 << 23;
inline constexpr double kTokens = 1 << 24;  // of a vocabulary, of a context
inline constexpr double kCount = 1e9;       // of what is counted one by one
inline constexpr double kSeconds = 1e9;
inline constexpr double kReal = 1e30, kLeastReal = 1e-30;  // fp32 holds them

}  // namespace trireme::limits
