#include "trireme/comm/version.h"

#include <fmt/format.h>

#include "trireme/base/options.h"
#include "trireme/io/hdf5.h"
#include "trireme/ops/libraries.h"
#include "trireme/tensor/cuda.h"

#include "cli/commands.h"
#include "cli/commit.h"

namespace trireme::cli {
namespace {

std::string compiler() {
#ifdef __clang__
  return fmt::format("Clang {}", __clang_version__);
#else
  return fmt::format("GCC {}", __VERSION__);
#endif
}

std::string or_no(const std::string& version) {
  return version.empty() ? "no" : version;
}

std::string line(std::string_view what, const std::string& value) {
  return fmt::format("{:<18}{}\n", what, value);
}

// Describes what a program that is built with CUDA has found. It works on any machine.
std::string gpu_text(cuda::Runtime& runtime) {
  const cuda::Devices devices = runtime.devices();
  const int driver = runtime.driver_version();
  std::string text = line("driver", driver == 0 ? "no" : "CUDA " + cuda::version_text(driver));
  if (devices.count == 0) return text + line("GPUs", "none: " + devices.why_none);
  for (int i = 0; i < devices.count; ++i) {
    const cuda::DeviceProperties gpu = runtime.properties(i);
    text += line(fmt::format("cuda:{}", i),
                 fmt::format("{}, {:.0f} GiB, compute capability {}.{}", gpu.name,
                             static_cast<double>(gpu.memory) / 1073741824.0, gpu.major, gpu.minor));
  }
  for (const cuda::LibraryInfo& library : cuda::find_libraries()) {
    const std::string found = library.version.empty() ? "no: " + library.path : library.version;
    text += line(library.name, library.oldest.empty()
                                   ? found
                                   : fmt::format("{}, too old: {} or newer is needed ({})", found,
                                                 library.oldest, library.path));
  }
  return text;
}

std::string version_text() {
  const ops::Context ctx = ops::make_cpu_context(1);
  const bool native = ops::has_native_bf16(ctx);
  std::string text = fmt::format("trireme {}\n\n", program_version());
  const auto add = [&](std::string_view what, const std::string& value) {
    text += line(what, value);
  };
  if (!program_commit().empty()) add("commit", program_commit());
  add("compiler", fmt::format("{}, {}", compiler(), TRIREME_BUILD_TYPE));
  add("MPI", mpi_library_version());
  add("files", hdf5::library_version());
  add("libraries", fmt::format("{}", fmt::join(ops::library_versions(), ", ")));
  const cuda::BuildInfo built = cuda::build_info();
  add("CUDA", built.toolkit.empty()
                  ? "no"
                  : fmt::format("{} for {}; cuBLASLt {}, cuDNN {}", built.toolkit,
                                built.architectures, built.cublaslt, or_no(built.cudnn)));
  add("NCCL", or_no(built.nccl));
  text += "\non this processor\n";
  add("instructions", std::string(ops::instruction_set(ctx)));
  add("fp32 products",
      fmt::format("{}: {}", ops::matmul_description(ctx, DType::kF32), ops::matmul_reason()));
  add("bf16 products",
      fmt::format("{}: {}", ops::matmul_description(ctx, DType::kBF16),
                  native ? "native" : "storage bf16, compute fp32; no bf16 instructions in use"));
  add("fp16 products",
      fmt::format("{}: storage fp16, compute fp32", ops::matmul_description(ctx, DType::kF16)));
  if (!built.toolkit.empty()) text += "\non GPUs here\n" + gpu_text(*cuda::make_runtime());
  return text;
}

}  // namespace

Work parse_version(const Arguments& arguments) {
  Options options("trireme version");
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  return show(version_text());
}

}  // namespace trireme::cli
