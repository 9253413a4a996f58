#include "trireme/comm/version.h"

#include <fmt/format.h>

#include "trireme/io/hdf5.h"
#include "trireme/ops/libraries.h"
#include "trireme/train/options.h"

#include "cli/commands.h"

namespace trireme::cli {
namespace {

std::string compiler() {
#ifdef __clang__
  return fmt::format("Clang {}", __clang_version__);
#else
  return fmt::format("GCC {}", __VERSION__);
#endif
}

std::string version_text() {
  const ops::Context ctx = ops::make_cpu_context(1);
  const bool native = ops::has_native_bf16(ctx);
  std::string text = fmt::format("trireme {}\n\n", TRIREME_VERSION);
  const auto add = [&](std::string_view what, const std::string& value) {
    text += fmt::format("{:<18}{}\n", what, value);
  };
  add("compiler", fmt::format("{}, {}", compiler(), TRIREME_BUILD_TYPE));
  add("MPI", mpi_library_version());
  add("files", hdf5::library_version());
  add("libraries", fmt::format("{}", fmt::join(ops::library_versions(), ", ")));
  add("CUDA", "no");
  add("NCCL", "no");
  text += "\non this processor\n";
  add("instructions", std::string(ops::instruction_set(ctx)));
  add("fp32 products",
      fmt::format("{}: {}", ops::matmul_description(ctx, DType::kF32), ops::matmul_reason()));
  add("bf16 products",
      fmt::format("{}: {}", ops::matmul_description(ctx, DType::kBF16),
                  native ? "native" : "storage bf16, compute fp32; no bf16 instructions in use"));
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
