// What `trireme bench` is asked for. Each measurement is in a file of its own: bench_comm.cc,
// bench_ops.cc, bench_products.cc, bench_step.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/exit_status.h"
#include "trireme/base/options.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/setup/compute_device.h"
#include "trireme/study/bench.h"

#include "cli/outputs.h"

namespace trireme::cli {

struct BenchArguments {
  struct Comm {
    std::string from = "1K", to = "16M", algorithm = "table", network = "none";
    std::optional<double> drop;
    double pause = 0.0;
    int factor = 4, warmup = 5, fewest = 3;
    bool peer = false;
  };
  struct Model {  // of ops and step
    std::string preset{models::families().front()->presets().front()};
    std::string dtype = "fp32", logits = "fp32";
    std::optional<int> context;
    int batch = 4;
  };
  struct Step {
    std::string recompute = "none", schedule = "1f1b";
    std::optional<int> micro, pipeline, tensor, chunks;
    int shard = 0;
    bool same_bits = false, kernels = false;
  };

  // What several measurements take.
  DeviceRequest device;
  std::optional<int> repeats;
  std::optional<double> seconds;
  std::string only, json;
  bool graphs = false;

  Comm comm;
  Model model;
  bool products = false, cold = false;  // of ops
  std::string describe;                 // of ops: a file
  struct Products {
    std::string config, write;  // files
    int most = 8;
  } of_products;
  Step step;
};

// Throws ConfigError for requests that no rank can fulfil, before any rank starts.
void check_bench_comm(const BenchArguments& given);
void check_bench_ops(const BenchArguments& given);
void check_bench_products(const BenchArguments& given);
void check_bench_step(const BenchArguments& given);

// Collective over the ranks. Each prints its table on rank 0 and writes the same figures to `json`.
ExitStatus bench_comm(Runtime& runtime, const BenchArguments& given, NamedOutput& json);
ExitStatus bench_ops(Runtime& runtime, const BenchArguments& given, NamedOutput& json);
ExitStatus bench_products(Runtime& runtime, const BenchArguments& given, NamedOutput& json);
ExitStatus bench_step(Runtime& runtime, const BenchArguments& given, NamedOutput& json);

void print_on_first(const Runtime& runtime, const std::string& line);
// Returns "-" for a value of 0.
std::string or_dash(double value, std::string_view format);

// What ops and step have in common.
models::Model model_of(const BenchArguments::Model& given);
// Returns the configuration of a training run whose steps are as those of the request.
Config training_of(const BenchArguments& given);
// Returns "4 sequences of 128".
std::string samples_of(const models::Model& model, std::int64_t samples);
std::string roof_text(const bench::Roof& roof, std::string_view dtype, const ops::Context& ctx);

}  // namespace trireme::cli
