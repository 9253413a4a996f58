// The largest values that options accept. They are far above useful values, but low enough that no
// product of sizes overflows 64 bits before the memory check (train/memory_check.h) sees it.
#pragma once

namespace trireme::limits {

inline constexpr double kSteps = 1e11;
inline constexpr double kSequences = 1 << 24;  // per step
inline constexpr double kThreads = 1024;
inline constexpr double kRanks = 1 << 20;
inline constexpr double kLayers = 4096;
inline constexpr double kWidth = 1 << 20;
inline constexpr double kHidden = 1 << 23;
inline constexpr double kTokens = 1 << 24;  // in a vocabulary or a context
inline constexpr double kPixels = 4096;     // along a side of a picture
inline constexpr double kWidthMultiple = 16;
inline constexpr double kCount = 1e9;        // for other counts
inline constexpr double kNcclChannels = 64;  // NCCL has no more
inline constexpr double kSeconds = 1e9;
inline constexpr double kReal = 1e30, kLeastReal = 1e-30;  // both fit into fp32

}  // namespace trireme::limits
