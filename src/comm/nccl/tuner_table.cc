#include "comm/nccl/tuner_table.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"

namespace trireme::nccl {
namespace {

constexpr int kOldestForTuner = 22800;  // the first with version 5 of the interface
constexpr const char* kSymbol = "ncclTunerPlugin_v5";

std::string words_of_error() {
  return std::strerror(errno);
}

}  // namespace

std::string why_no_tuner(const std::string& plugin, int nccl_version) {
  if (nccl_version < kOldestForTuner) {
    return fmt::format("NCCL {} is older than {}", version_text(nccl_version),
                       version_text(kOldestForTuner));
  }
  if (const char* other = std::getenv(kTunerPlugin); other != nullptr) {
    return fmt::format("{}={} is in the environment", kTunerPlugin, other);
  }
  const DynamicLibrary library({plugin});
  if (!library.found()) return library.why_not();
  if (library.function<void()>(kSymbol) == nullptr) {
    return fmt::format("{} has no {}", plugin, kSymbol);
  }
  return "";
}

TunerTable::TunerTable(const std::string& plugin)
    : file_(memfd_create("trireme-nccl-table", MFD_CLOEXEC)) {
  if (file_ < 0) throw NcclError("no memory file for the tuner's table: " + words_of_error());
  setenv(kTunerTable, fmt::format("/proc/self/fd/{}", file_).c_str(), 1);
  setenv(kTunerPlugin, plugin.c_str(), 1);
}

TunerTable::~TunerTable() {
  unsetenv(kTunerPlugin);
  unsetenv(kTunerTable);
  close(file_);
}

void TunerTable::write(const std::string& text) {
  const auto check = [](bool fine) {
    if (!fine) throw NcclError("the tuner's table cannot be written: " + words_of_error());
  };
  check(ftruncate(file_, 0) == 0);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t done =
        pwrite(file_, left.data(), left.size(), static_cast<off_t>(text.size() - left.size()));
    check(done > 0 || (done < 0 && errno == EINTR));
    if (done > 0) left.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace trireme::nccl
