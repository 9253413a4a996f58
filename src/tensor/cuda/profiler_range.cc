#include "trireme/tensor/profiler_range.h"

#include <string>

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include "trireme/base/environment.h"

namespace trireme {
namespace {

// A profiler tells NVTX by this variable which library to load.
bool attached() {
  static const bool is = !environment("NVTX_INJECTION64_PATH").empty();
  return is;
}

}  // namespace

ProfilerRange::ProfilerRange(std::string_view name, std::int64_t number) {
  if (!attached()) return;
  nvtxRangePushA((number < 0 ? std::string(name) : fmt::format("{} {}", name, number)).c_str());
}

ProfilerRange::~ProfilerRange() {
  if (attached()) nvtxRangePop();
}

}  // namespace trireme
