// What NCCL (2.28 and newer) asks of a tuner plugin, version 5 of that interface, declared here so
// that no header of NCCL is needed. NCCL opens the library that NCCL_TUNER_PLUGIN names and looks
// for a variable `ncclTunerPlugin_v5` of type nccl_tuner::Plugin. All results are NCCL's error
// codes, where 0 is success; another one would fail the collective.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::nccl_tuner {

// Writes to NCCL's log, which NCCL_DEBUG turns on. `flags` says which parts of NCCL a line is
// about; the rest is as for printf.
using Log = void(int level, unsigned long flags, const char* file, int line, const char* format,
                 ...);
inline constexpr int kLogWarning = 2;
inline constexpr int kLogInformation = 3;
inline constexpr unsigned long kLogTuning = 0x40;

struct Plugin {
  const char* name;
  // Called once for each communicator; `context` is what the other functions get. NCCL's NVLink
  // domains and the constants of its model come last: both may be ignored.
  int (*init)(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
              Log* log, void* nvlink_domains, void* constants);
  // Called for each collective. `times` is a flat array of `algorithms` x `protocols` floats,
  // whatever its type says: microseconds, negative where NCCL cannot take that cell. NCCL takes the
  // cell with the smallest time that is not negative, so 0 chooses a cell. `channels` is 0, which
  // leaves their number to NCCL.
  int (*choose)(void* context, int collective, std::size_t bytes, int operations, float** times,
                int algorithms, int protocols, int registered, int* channels);
  int (*finalize)(void* context);
};

}  // namespace trireme::nccl_tuner
