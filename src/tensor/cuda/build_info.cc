// Reports what was built in, and which of the libraries that are opened later are installed.
#include <fmt/format.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/tensor/cuda.h"

namespace trireme::cuda {
namespace {

int major_of(const std::string& version) {
  return std::stoi(version);
}

// `version` is that of the headers. It is empty in a build without the library.
template <class Version>
void look(std::vector<LibraryInfo>& found, const char* name, const char* file, int soname,
          const std::string& version, Version version_of) {
  if (version.empty()) return;
  const DynamicLibrary library(cuda_library_names(file, soname));
  if (!library.found()) {
    found.push_back({name, "", library.why_not()});
    return;
  }
  found.push_back({name, version_of(library), library.path()});
}

// Writes 130100 as 13.1.0.
std::string dotted(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace

std::string version_text(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

BuildInfo build_info() {
  return {TRIREME_CUDA_TOOLKIT, TRIREME_CUDA_ARCHITECTURES, TRIREME_CUBLASLT, TRIREME_CUDNN,
          TRIREME_NCCL};
}

std::vector<LibraryInfo> find_libraries() {
  const BuildInfo built = build_info();
  std::vector<LibraryInfo> found;
  if (built.toolkit.empty()) return found;
  look(found, "cuBLASLt", "cublasLt", major_of(built.cublaslt), built.cublaslt,
       [](const DynamicLibrary& library) {
         auto* version = library.function<std::size_t()>("cublasLtGetVersion");
         return version == nullptr ? "unknown" : dotted(version());
       });
  look(found, "cuDNN", "cudnn", 9, built.cudnn, [](const DynamicLibrary& library) {
    auto* version = library.function<std::size_t()>("cudnnGetVersion");
    return version == nullptr ? "unknown" : dotted(version());
  });
  std::string oldest_nccl;
  look(found, "NCCL", "nccl", 2, built.nccl, [&](const DynamicLibrary& library) {
    auto* version = library.function<int(int*)>("ncclGetVersion");
    int number = 0;
    if (version == nullptr || version(&number) != 0) return std::string("unknown");
    if (number < kOldestNccl) oldest_nccl = dotted(kOldestNccl);
    return dotted(static_cast<std::size_t>(number));
  });
  if (!oldest_nccl.empty()) found.back().oldest = oldest_nccl;
  return found;
}

}  // namespace trireme::cuda
