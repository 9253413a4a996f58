// The table that the plugin libtrireme_tuner.so reads whenever a communicator starts.
#pragma once

#include <string>

#include "comm/nccl/nccl_library.h"

namespace trireme::nccl {

inline constexpr const char* kTunerPlugin = "NCCL_TUNER_PLUGIN";
inline constexpr const char* kTunerTable = "TRIREME_NCCL_TABLE";

// Why this process cannot use a plugin; empty if it can. Opens the plugin.
std::string why_no_tuner(const std::string& plugin, int nccl_version);

// A file that only this process has, in memory: it needs no folder and leaves nothing behind. While
// it exists, the environment names it and the plugin. So create it before NCCL's first
// communicator, which is when NCCL looks. The environment is set once, by the main thread, and not
// again for each communicator, because setenv must not run at the same time as a getenv of another
// thread: by then NCCL has no threads yet, and ours (progress engine, watchdog) read the
// environment only to end a job that has failed. It is unset after NCCL's last communicator has
// ended.
class TunerTable {
 public:
  // Throws NcclError if the system has no such file left.
  explicit TunerTable(const std::string& plugin);
  ~TunerTable();
  TunerTable(const TunerTable&) = delete;
  TunerTable& operator=(const TunerTable&) = delete;

  // Replaces the text. No communicator may be starting meanwhile.
  void write(const std::string& text);

 private:
  int file_ = -1;
};

}  // namespace trireme::nccl
