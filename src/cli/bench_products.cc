// trireme bench products: the algorithms of a GPU's library for the products of a configuration.
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/job/job_script.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/settled_micro.h"
#include "trireme/setup/step_setup.h"
#include "trireme/study/product_times.h"

#include "cli/bench_arguments.h"
#include "cli/outputs.h"

namespace trireme::cli {
namespace {

// A training run, as far as its steps depend on it.
struct TrainingOfConfig {
  Config config;
  models::Model model;
};

// Collective over the world. The leading rank reads the file.
TrainingOfConfig training_in(Runtime& runtime, const std::string& path) {
  Config config =
      config_from_ini(runtime.world().read_once([&] { return read_run_config(path); }), path);
  config.cuda.products.clear();  // algorithms are chosen anew
  config.cuda.graphs = false;    // whose calls would be seen once
  check_config_without_data(config);
  write_out_micro(config);
  return {config, models::resolve(config.model, facts_to_check(config))};
}

// Collective over the world. Runs a step, so that the context knows its products.
void make_step(Runtime& runtime, ComputeDevice& device, TrainingOfConfig& training) {
  Config& config = training.config;
  const GridShape grid = resolve_run_grid(config, runtime.size());
  settle_micro_here(runtime, device, training.model, grid, {}, config);
  check_model_fits_grid(config, training.model, grid);
  check_memory_here(dry_run_input(config, training.model, grid), runtime, device);
  bench::StepBenchOptions options;
  options.model = training.model;
  options.batch = config.batch.global;
  options.micro = config.batch.micro;
  options.grid = grid;
  options.step = step_options(config, training.model.plan, grid);
  options.repeats = 1;
  bench::measure_step(runtime, device.context, options);
}

void print_times(const bench::ProductTimes& times) {
  const ops::ProductChoice choice = times.choice();
  print_line(fmt::format("{:<72}{:>7}{:>6}{:>10.3f}{:>10.3f}{:>8.1f}", ops::text_of(times.product),
                         times.calls, times.algorithms.size(), choice.first * 1e3,
                         choice.seconds * 1e3, 100.0 * (1.0 - choice.seconds / choice.first)));
}

}  // namespace

void check_bench_products(const BenchArguments& given) {
  if (given.of_products.config.empty()) {
    throw ConfigError(
        "bench products times the products of a configuration: give --config FILE, as for train");
  }
  keep_inputs({given.of_products.config}, {given.of_products.write});
}

ExitStatus bench_products(Runtime& runtime, const BenchArguments& given, NamedOutput&) {
  TrainingOfConfig training = training_in(runtime, given.of_products.config);
  ComputeDevice device = choose_compute_device(runtime, device_request(training.config));
  ops::Context& ctx = device.context;
  if (ops::product_algorithms(ctx) == nullptr) {
    throw ConfigError(
        fmt::format("bench products is for GPUs, whose library has several algorithms for a "
                    "product, and this computes on {}",
                    device.description.empty() ? device.name : device.description));
  }
  NamedOutput file(runtime, given.of_products.write);
  make_step(runtime, device, training);
  const ops::ProductMachine machine = ops::product_machine(ctx);
  print_on_first(runtime, fmt::format("{}, {}", machine.gpu, machine.library));
  print_on_first(runtime, fmt::format("{:<72}{:>7}{:>6}{:>10}{:>10}{:>8}", "product", "calls", "of",
                                      "first ms", "best ms", "less %"));
  double first = 0.0, best = 0.0;
  bench::ProductTimesOptions options{.most = given.of_products.most};
  options.repeats = given.repeats.value_or(options.repeats);
  const auto times = bench::time_products(ctx, options, [&](const bench::ProductTimes& one) {
    const ops::ProductChoice choice = one.choice();
    first += static_cast<double>(one.calls) * choice.first;
    best += static_cast<double>(one.calls) * choice.seconds;
    if (runtime.rank() == 0) print_times(one);
  });
  const ops::ProductFile all = bench::gathered_products(runtime.world(), machine, times);
  print_on_first(runtime,
                 fmt::format("all calls{} take {:.1f} % less than with the first proposals",
                             runtime.size() > 1 ? " of rank 0" : "",
                             first > 0.0 ? 100.0 * (1.0 - best / first) : 0.0));
  file.write_whole(runtime, ops::write_products(all));
  if (file.is_there()) {
    print_line(fmt::format("{}: {} products", given.of_products.write, all.choices.size()));
  }
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
