#include "train/narrator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trireme/base/log.h"
#include "trireme/base/shares.h"
#include "trireme/base/text.h"
#include "trireme/base/usual_threads.h"
#include "trireme/parallel/schedule_forecast.h"
#include "trireme/setup/step_setup.h"

namespace trireme {
namespace {

const std::string kClearLine = "\r\x1b[K";
constexpr double kSilenceSeconds = 60.0;  // a log without a line for longer looks dead

std::string skipped(const StepMetrics& m) {
  if (!m.skipped) return "";
  if (!m.loss_scale) return "  SKIPPED: non-finite gradients";
  return fmt::format("  SKIPPED: gradients overflow fp16; loss scale {}",
                     plain_number(*m.loss_scale));
}

std::string loss_and_norm(const StepMetrics& m) {
  if (m.no_targets) return "without one target, so it changes nothing";
  return fmt::format("loss {:.4f}  lr {:.2e}  norm {:.2f}", m.loss, m.learning_rate,
                     m.gradient_norm);
}

// Says which blocks each stage holds: "embedding to blocks.2 | blocks.3 to head". Several chunks of
// a stage are joined by "and".
std::string stages(const nn::ModelPlan& plan, const parallel::Stage& stage) {
  const auto name = [&](int block) { return plan.blocks[static_cast<std::size_t>(block)].name; };
  const parallel::PipelineLayout& layout = stage.layout();
  std::string text;
  for (int s = 0; s < layout.stages; ++s) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const auto part = static_cast<std::size_t>(layout.part(s, chunk));
      const int first = stage.bounds()[part], last = stage.bounds()[part + 1] - 1;
      text += chunk > 0 ? " and " : s > 0 ? " | " : "";
      text += first == last ? name(first) : fmt::format("{} to {}", name(first), name(last));
    }
  }
  return text;
}

// Says what a step trains on: "32 sequences of 128 = 4096 tokens".
std::string batch_text(const Config& config) {
  const tasks::Task& task = tasks::task_of(config.model);
  const Shape sample = models::sample_shape(config.model);
  const std::int64_t samples = config.batch.global, units = task.units_of_sample(sample);
  const std::string text = tasks::samples_text(task, samples, sample);
  return units == 1 ? text : fmt::format("{} = {} {}", text, samples * units, task.unit().many);
}

// Says how the gradients of a step are added up: "4 runs of 2 micro-batches; ...".
std::string runs_text(const parallel::WorkSplit& work) {
  const int each = work.runs(), runs = work.runs_of_step();
  const int length = work.has_shares() ? work.least() : work.micro_batches() / runs;
  const int longest = work.has_shares() ? work.most() : (work.micro_batches() - 1) / runs + 1;
  std::string how = "one for each data replica";
  if (each > 1 && work.reduces_each()) how = fmt::format("{} reductions a step", each);
  if (each > 1 && !work.reduces_each()) {
    how = fmt::format("each data replica adds up {} and reduces once", each);
  }
  return fmt::format(
      "{} run{} of {} micro-batch{}; {}", runs, runs == 1 ? "" : "s",
      length == longest ? fmt::format("{}", length)
                        : fmt::format("{} {} {}", length, work.has_shares() ? "to" : "or", longest),
      longest == 1 ? "" : "es", how);
}

// Says how gradients travel where that is in few bits; otherwise nothing.
std::string compressed_text(const Config& config, const parallel::TrainerStep& step) {
  const std::string& compress = config.comm.compress;
  if (compress == "none") return "";
  return step.compresses() ? "as " + compress + " between data replicas, with error feedback"
                           : "comm.compress does nothing: there is one data replica";
}

// Says how they are added up and travel.
std::string gradients_text(const Config& config, const parallel::TrainerStep& step) {
  const parallel::WorkSplit& work = step.options().work;
  const std::string runs = work.keeps_runs() ? runs_text(work) : "";
  const std::string compressed = compressed_text(config, step);
  return runs + (runs.empty() || compressed.empty() ? "" : "; ") + compressed;
}

// Says what is sharded, and what that moves.
std::string shards_text(const Config& config, const nn::ModelPlan& plan,
                        const parallel::TrainerStep& step) {
  const parallel::Stage& stage = step.stage();
  const Config::Shard& shard = config.shard;
  const GridShape& grid = stage.grid().shape();
  const double count = grid[Axis::kShard], copies = grid[Axis::kReplicate];
  double weights = 0.0, gradients = 0.0;  // bytes that come to this rank in a step
  const auto reduced = [&](const nn::FlatGroup& group) {
    const auto elements = static_cast<double>(group.extent());
    if (step.compresses()) {  // terms of the own part, and what others have added up
      constexpr double kBytes = 1.0 + 2.0 / ops::kQuantizedBlock;  // with the scales
      return elements * kBytes * (count * copies - 1 + copies - 1) / (count * copies);
    }
    return elements * 4.0 * (count - 1 + 2 * (copies - 1) / copies) / count;
  };
  for (const nn::FlatGroup* group : stage.groups()) {
    if (group->trains()) gradients += reduced(*group);
    if (!group->trains() && !shard.divides_weights()) continue;  // gathered once
    weights += static_cast<double>(group->extent()) *
               static_cast<double>(size_of(stage.options().compute));
  }
  for (const auto& use : stage.uses_apart()) gradients += reduced(*use.gradients);
  weights *= (count - 1) / count;
  const parallel::WorkSplit& work = step.options().work;
  if (work.reduces_each()) gradients *= work.runs();
  // Weights are gathered in forward and backward of every micro-batch.
  if (shard.divides_weights()) weights *= 2.0 * work.most();
  const bool whole_gradients = stage.options().whole_gradients;
  const bool says_why = whole_gradients && shard.divides_gradients();
  return fmt::format(
      "shard.stage {}: each rank holds 1/{} of {}{}master weights and optimizer state{}; a step "
      "brings rank 0 {}{:.1f} MiB of weights and {:.1f} MiB of gradients{}{}",
      shard.stage, grid[Axis::kShard], shard.divides_weights() ? "weights, " : "",
      whole_gradients ? "" : "gradients, ",
      copies > 1 && !config.shard.group ? " (shard.group by the network)" : "",
      shard.divides_weights() ? "up to " : "", weights / 1048576.0, gradients / 1048576.0,
      says_why ? "; whole gradients stay, since " : "",
      says_why ? why_whole_gradients_stay(config, plan, grid) : "");
}

std::string model_text(const StartedRun& run) {
  const nn::TrainedParameters& trained = run.step.stage().options().trained;
  const std::string text = fmt::format("{}; {} parameters", run.plan.description,
                                       short_number(static_cast<double>(run.plan.parameters)));
  if (trained.all()) return text;
  return fmt::format("{}, of which {} train (optim.freeze)", text,
                     short_number(static_cast<double>(trained.total())));
}

std::string of_each_island(const Config& config) {
  return config.grid.islands > 1 ? " of each island" : "";
}

std::string grid_text(const StartedRun& run) {
  const int threads = run.device.context.threads;
  const bool by_openmp = !run.config.run.threads && openmp_threads() == threads;
  return fmt::format("{}{}; {} a rank{}{}", run.step.stage().grid().shape().to_string(),
                     of_each_island(run.config), counted(threads, "thread"),
                     by_openmp ? " (OMP_NUM_THREADS)" : "",
                     run.config.grid.sequence_parallel ? "; sequence parallel" : "");
}

// Says how many islands there are and how they meet; nothing where they never do.
std::string islands_text(const Config& config) {
  const std::optional<int> every = steps_between_meetings(config);
  if (!every) return "";
  const Config::Sync& sync = config.sync;
  const std::string who = sync.is_member()
                              ? fmt::format("{} of the run in {}", sync.member, config.run.folder)
                              : fmt::format("{}", config.grid.islands);
  const bool one = config.grid.islands == 1;
  std::string text =
      fmt::format("{}, which meet{} every {}", who, one ? "s" : "", counted(*every, "step"));
  if (sync.first > 0) text += fmt::format(" after {}", counted(sync.first, "step"));
  text += sync.outer == "average" ? ": the mean"
                                  : fmt::format(": outer step {}, momentum {}",
                                                write_value(sync.lr), write_value(sync.momentum));
  std::vector<std::string> how;
  if (sync.fragments > 1) how.push_back(counted(sync.fragments, "fragment"));
  if (sync.delay > 0) how.push_back(counted(sync.delay, "step") + " on the way");
  if (sync.reduce != "fp32") how.push_back("sent as " + sync.reduce);
  return how.empty() ? text : fmt::format("{}; {}", text, fmt::join(how, ", "));
}

std::string stages_text(const StartedRun& run) {
  const parallel::Stage& stage = run.step.stage();
  const parallel::StepOptions& options = run.step.options();
  const Communicator& pipeline = stage.grid().comm(Axis::kPipeline);
  const std::string& schedule = run.config.grid.schedule;
  const auto forecast = parallel::forecast_schedule(
      schedule, stage.layout(), run.plan,
      {.micro_batches = options.work.most(),
       .recomputed = options.runs.recomputed(),
       .recomputed_blocks = options.runs.recomputed_blocks,
       .in_order = pipeline.exchanges_in_order(run.device.context.device.kind),
       .trained = stage.options().trained,
       .cut = stage.options().cut});
  return fmt::format("{}; schedule {}, by FLOPs idle {:.0f} % of the time", stages(run.plan, stage),
                     schedule, 100 * forecast.idle);
}

// Says what replicas of unequal speed have of a step: ": 4, 2, 2".
std::string unequal_text(const parallel::WorkSplit& work) {
  if (!work.has_shares()) return "";
  std::vector<int> shares;
  for (int replica = 0; replica < work.replicas(); ++replica) shares.push_back(work.count(replica));
  return ": " + shares_text(shares);
}

std::string split_batch_text(const StartedRun& run) {
  const Config::Batch& batch = run.config.batch;
  const int replicas = run.step.stage().grid().shape().extent(kDataAxes);
  return fmt::format("{} a step{}: {} micro-batches of {}, over {} data replica{}{}",
                     batch_text(run.config), of_each_island(run.config), batch.global / batch.micro,
                     int{batch.micro}, replicas, replicas == 1 ? "" : "s",
                     unequal_text(run.step.options().work));
}

std::string recompute_text(const Config::Recompute& recompute) {
  const std::string blocks = recompute.blocks ? fmt::format(", in the first {} of each stage",
                                                            counted(*recompute.blocks, "block"))
                                              : "";
  if (recompute.mode == "selective") {
    return "selective: outputs of norms and activations are made again in the backward" + blocks;
  }
  if (recompute.mode != "full") return "";
  return fmt::format(
      "full: only the input of {} is kept for the backward{}",
      recompute.every == 1 ? "each block" : fmt::format("every {} blocks", recompute.every),
      blocks);
}

std::string data_text(const StartedRun& run) {
  const double read =
      static_cast<double>(run.config.run.steps) * run.config.batch.global * run.config.grid.islands;
  const auto tokens = run.data.facts().vocabulary;
  const auto rows = option_value<int>(run.config.model.keys, "model", "vocabulary");
  const std::string padding =
      tokens && rows && *rows > *tokens
          ? fmt::format(" (model.vocabulary is {}: {} rows stand for no token)", *rows,
                        *rows - *tokens)
          : "";
  return fmt::format("{}{}; the run reads {:.2f} epochs", run.data.description(), padding,
                     read / static_cast<double>(run.data.samples()));
}

std::string memory_text(const Allocator& allocator) {
  const MemoryStats memory = allocator.stats();
  const auto mib = [&](MemoryUse use) {
    return static_cast<double>(memory.live[static_cast<std::size_t>(use)]) / 1048576.0;
  };
  return fmt::format(
      "rank 0 holds {:.0f} MiB of parameters, {:.0f} of gradients, {:.0f} of optimizer state; "
      "activations come on top",
      mib(MemoryUse::kParameters), mib(MemoryUse::kGradients), mib(MemoryUse::kOptimizer));
}

std::string compute_text(const StartedRun& run) {
  const ops::Context& ctx = run.device.context;
  const DType compute = run.step.stage().options().compute;
  const bool ignores_tf32 =
      run.config.run.precision == "tf32" && ctx.device.kind == DeviceKind::kCpu;
  std::string text = fmt::format("{}{}, {}; products by {}", name_of(compute),
                                 ignores_tf32 ? " (tf32 is for GPUs)" : "",
                                 ops::instruction_set(ctx), ops::matmul_description(ctx, compute));
  if (run.step.stage().options().block_scaled) {
    text += fmt::format("; in training those of blocks of e4m3, by {}",
                        ops::matmul_description(ctx, DType::kE4M3));
  }
  return text;
}

}  // namespace

Narrator::Narrator(bool speaks, std::int64_t first_step, std::optional<std::int64_t> total_steps,
                   std::int64_t every, const tasks::Unit& unit)
    : unit_(unit),
      speaks_(speaks),
      terminal_(isatty(STDOUT_FILENO) != 0),
      first_step_(first_step),
      total_steps_(total_steps),
      every_(every) {}

void Narrator::say(const std::string& line) {
  if (!speaks_) return;
  if (line_open_) print_bytes(kClearLine);
  print_line(line);
  line_open_ = false;
}

std::string Narrator::describe(const StepMetrics& m) const {
  const std::string facts =
      fmt::format("{}  {:.0f} {}  {:.0f} MiB", loss_and_norm(m), m.units_per_second, unit_.rate(),
                  m.needed_memory() / 1048576.0);
  // A member of a run may do more steps than the run has.
  const std::int64_t total = total_steps_.value_or(0);
  if (m.step > total) return fmt::format("step {}  {}{}", m.step, facts, skipped(m));
  const double per_step = since_start_.seconds() / static_cast<double>(m.step - first_step_);
  return fmt::format("step {:>{}}/{}  {}  {} left{}", m.step, std::to_string(total).size(), total,
                     facts, duration_text(per_step * static_cast<double>(total - m.step)),
                     skipped(m));
}

void Narrator::step(const StepMetrics& m) {
  ++steps_;
  step_seconds_ += m.step_seconds;
  silent_seconds_ += m.step_seconds;
  wait_seconds_ += m.wait_data_seconds;
  comm_seconds_ += m.exposed_comm_seconds;
  units_ += m.units_per_second * m.step_seconds;
  if (!speaks_) return;
  const bool odd = m.skipped || m.no_targets;
  if (terminal_ && !odd) {
    print_bytes(kClearLine + describe(m));
    line_open_ = true;
  } else if (odd || m.step % every_ == 0 || m.step == total_steps_ ||
             silent_seconds_ >= kSilenceSeconds) {
    say(describe(m));
    silent_seconds_ = 0.0;
  }
}

void Narrator::close(const StepMetrics& last) {
  if (steps_ == 0) return;
  say(
      fmt::format("{} steps in {}{}; {:.0f} {}; of the step time {:.1f} % waited for "
                  "data, {:.1f} % for communication; peak memory {:.0f} MiB a rank",
                  steps_, duration_text(since_start_.seconds()),
                  last.no_targets ? "" : fmt::format(", loss {:.4f}", last.loss),
                  units_ / step_seconds_, unit_.rate(), 100.0 * wait_seconds_ / step_seconds_,
                  100.0 * comm_seconds_ / step_seconds_, last.needed_memory() / 1048576.0));
}

std::string startup_table(const StartedRun& run) {
  const bool in_stages = run.step.stage().grid().shape()[Axis::kPipeline] > 1;
  std::string table;
  const auto row = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    table += fmt::format("{}{:<10} {}", table.empty() ? "" : "\n", name, value);
  };
  row("model", model_text(run));
  row("grid", grid_text(run));
  row("islands", islands_text(run.config));
  row("stages", in_stages ? stages_text(run) : "");
  row("batch", split_batch_text(run));
  row("gradients", gradients_text(run.config, run.step));
  row("shards", run.step.stage().sharded() ? shards_text(run.config, run.plan, run.step) : "");
  row("recompute", recompute_text(run.config.recompute));
  row("data", data_text(run));
  row("memory", memory_text(*run.device.context.allocator));
  row("compute", compute_text(run));
  row("attention", run.attention.by == "none" ? "" : run.attention.text);
  row("device", run.device.description);
  row("network", run.network);
  row("run", folder_of_job(run.config));
  return table;
}

}  // namespace trireme
