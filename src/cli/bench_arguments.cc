#include "cli/bench_arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/tasks/task.h"

namespace trireme::cli {
namespace {

constexpr std::int64_t kContext = 256;  // the default; a model may have less

}  // namespace

void print_on_first(const Runtime& runtime, const std::string& line) {
  if (runtime.rank() == 0) print_line(line);
}

std::string or_dash(double value, std::string_view format) {
  return value > 0.0 ? fmt::format(fmt::runtime(format), value) : "-";
}

models::Model model_of(const BenchArguments::Model& given) {
  models::ModelRequest request{.keys = {{"preset", given.preset}}};
  for (const models::Family* family : models::families()) {
    if (std::ranges::count(family->presets(), given.preset) > 0) request.family = family->name();
  }
  const Shape sample = models::sample_shape(request);
  if (sample.rank() == 1) {  // a text
    const std::int64_t context = sample[0];
    request.keys["context"] = write_value(given.context.value_or(std::min(kContext, context)));
  } else if (given.context) {
    throw ConfigError(
        fmt::format("--context is the length of a text, but {} is for pictures", given.preset));
  }
  if (given.logits == "fp32") return models::resolve(request, {});
  if (given.dtype != given.logits && given.dtype != "fp8") {
    throw ConfigError(fmt::format("--logits {} needs --dtype {}, not {}", given.logits,
                                  given.logits, given.dtype));
  }
  request.keys["logits"] = given.logits;
  models::Model model = models::resolve(request, {});
  if (std::ranges::none_of(model.plan.blocks,
                           [](const nn::BlockPlan& block) { return block.sliced_classes != 0; })) {
    throw ConfigError(fmt::format("--logits is of a loss over a vocabulary, which {} does not have",
                                  given.preset));
  }
  return model;
}

Config training_of(const BenchArguments& given) {
  Config config;
  config.batch.global = given.model.batch;
  config.batch.micro = given.step.micro.value_or(given.model.batch);
  config.run.precision = given.model.dtype;
  config.run.same_bits = given.step.same_bits;
  config.grid[Axis::kPipeline] = given.step.pipeline;
  config.grid[Axis::kTensor] = given.step.tensor;
  config.grid.schedule = given.step.schedule;
  config.grid.chunks = given.step.chunks;
  config.shard.stage = given.step.shard;
  config.recompute.mode = given.step.recompute;
  config.cuda.graphs = given.graphs;
  return config;
}

std::string samples_of(const models::Model& model, std::int64_t samples) {
  return tasks::samples_text(tasks::task_of(model.request), samples,
                             models::sample_shape(model.request));
}

std::string roof_text(const bench::Roof& roof, std::string_view dtype, const ops::Context& ctx) {
  const std::string sustained =
      roof.sustained > 0.0 ? fmt::format(" ({:.1f} sustained)", roof.sustained * 1e-9) : "";
  return fmt::format("roof: {:.1f} GFLOP/s in a {} product{}, {:.1f} GB/s in a {}",
                     roof.flops * 1e-9, dtype, sustained, roof.bandwidth * 1e-9,
                     ctx.cuda ? "copy" : "triad");
}

}  // namespace trireme::cli
