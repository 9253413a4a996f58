#include "train/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/config/schedule_options.h"
#include "trireme/ops/arithmetic.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/elementwise.h"
#include "trireme/optim/learning_rate_table.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/finite_values.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/setup/step_setup.h"
#include "trireme/topology/planner.h"

#include "train/kept_state.h"
#include "train/run_changes.h"
#include "train/same_bits.h"
#include "train/starting_point.h"

namespace trireme {
namespace {

// Says where an evaluation of some samples takes them: missing, from the beginning of the data.
constexpr const char* kEvaluationAttribute = "evaluation_samples";
// The number of ops::arithmetic_now() of the program that wrote the checkpoint; missing, 1.
constexpr const char* kArithmeticAttribute = "arithmetic";
// Position::skipped_since, where there is one, and Position::skipped_in_a_row.
constexpr const char* kSkippedAttribute = "skipped_since";
constexpr const char* kSkippedInARowAttribute = "skipped_in_a_row";

// Whether a slice is of one of these parameters.
bool is_one_of(const TensorSlice& slice, const std::vector<std::string>& parameters) {
  return std::ranges::any_of(
      parameters, [&](const std::string& name) { return slice.name == "parameters/" + name; });
}

bool holds_kept_gradients(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.contents().tensors, is_kept_gradient,
                             &CheckpointTensor::name);
}

// The number under that attribute; nothing where there is none, or it is no number of steps.
std::optional<std::int64_t> number_of_steps(const CheckpointInfo& info, const char* attribute) {
  const auto found = info.extra.find(attribute);
  if (found == info.extra.end()) return std::nullopt;
  const std::string& text = found->second;
  std::int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number >= 0 && number <= info.step ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> skipped_since(const CheckpointInfo& info) {
  const auto since = number_of_steps(info, kSkippedAttribute);
  return since == 0 ? std::nullopt : since;
}

// `checkpoint` is the newest from before the weights went astray; empty: there is none.
std::string words_on_way_back_to(const std::string& checkpoint) {
  if (checkpoint.empty()) {
    return "no checkpoint from before is left: begin anew (--run.resume never) with a lower "
           "optim.lr";
  }
  return fmt::format("go on from {} (--run.resume {}) with a lower optim.lr",
                     std::filesystem::path(checkpoint).filename().string(), checkpoint);
}

}  // namespace

std::string RunCheckpoints::Position::words_on_skipped() const {
  if (skipped() == 0) return "";
  if (skipped() == 1) return "the last step was skipped: its gradients were not finite";
  return fmt::format("the last {} steps were skipped: their gradients were not finite", skipped());
}

std::string RunCheckpoints::words_on_way_back() const {
  return words_on_way_back_to(before_skipped_);
}

// Collective over the world. Returns the newest checkpoint beside this one that has fewer than
// `step` steps; empty if there is none.
std::string RunCheckpoints::newest_before(const std::string& checkpoint, std::int64_t step) const {
  return run_.runtime.world().read_once([&] {
    std::string newest;
    const std::filesystem::path folder = std::filesystem::path(checkpoint).parent_path();
    for (const CheckpointFile& file : list_checkpoints(folder.empty() ? "." : folder.string())) {
      if (file.step < step) newest = file.path;
    }
    return newest;
  });
}

// Collective over the world. Throws CheckpointError if what was read has weights that are NaN or
// infinite. `goes_on`: the run goes on from there; otherwise it only takes the weights.
void RunCheckpoints::check_finite(const Checkpoint& checkpoint, bool goes_on) const {
  const std::string fault =
      fault_of_weights(run_.device.context, run_.step.stage(), run_.runtime.world());
  if (fault.empty()) return;
  throw CheckpointError(fmt::format(
      "{}: {}, so nothing can be learned from there: {}", checkpoint.path(), fault,
      goes_on ? words_on_way_back_to(newest_before(checkpoint.path(), checkpoint.info().step))
              : "run.start_from needs another checkpoint"));
}

bool RunCheckpoints::scales_dynamically() const {
  return !loss_scaling(run_.config).is_fixed();
}

// What has changed this program's results since the checkpoint; empty if nothing, or if it computed
// none before.
std::string RunCheckpoints::words_on_arithmetic(const Checkpoint& checkpoint) const {
  int number = 1;
  const auto& extra = checkpoint.info().extra;
  if (extra.contains(kImportedAttribute)) return "";
  if (const auto found = extra.find(kArithmeticAttribute); found != extra.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  const int now = ops::arithmetic_now();
  ops::Arithmetic model{.compute = run_.step.stage().options().compute};
  for (const nn::BlockPlan& block : models::resolve(run_.config.model, {}).plan.blocks) {
    const std::int64_t classes =
        nn::vocabulary_rows_in_memory(block.sliced_classes, run_.grid.shape()[Axis::kTensor]);
    model.classes = std::max(model.classes, classes);
    model.batch_norms = model.batch_norms || block.states > 0;  // nothing else has states
  }
  const std::string since = ops::arithmetic_since(number, run_.device.context, model);
  if (since.empty() && number <= now) return "";
  return fmt::format("arithmetic was {}, is {}{}", number, now,
                     since.empty() ? "" : fmt::format(" ({})", since));
}

// Returns the run's choices that can change bits. They are compared on resume.
std::map<std::string, std::string> RunCheckpoints::recorded_choices() const {
  const ops::Context& ctx = run_.device.context;
  const DType compute = run_.step.stage().options().compute;
  std::map<std::string, std::string> choices = {
      {"attention", run_.attention.by},
      {"batch_runs", std::to_string(run_.step.options().work.runs_of_step())},
      {"carrier", run_.device.carrier},
      {"device", run_.device.name},
      {"grid", run_.grid.shape().to_string()},
      {"threads", std::to_string(ctx.threads)},
      {"instruction_set", std::string(ops::instruction_set(ctx))},
      {"product_algorithms", run_.products.mark},
      {"matmul", std::string(ops::matmul_description(ctx, compute))}};
  const auto operations = models::resolve(run_.config.model, {}).operations(1);
  const auto convolves = [](const models::Operation& operation) {
    return std::holds_alternative<models::ConvolutionSizes>(operation);
  };
  if (std::ranges::any_of(operations, convolves)) {
    choices["convolution"] = ops::convolution_description(ctx);
  }
  return choices;
}

// Returns the table of each communicator of this rank, and for which network it was made.
std::map<std::string, std::string> RunCheckpoints::recorded_plans() const {
  const auto& network = run_.network.network;
  std::map<std::string, std::string> plans = {{"network", network ? network->source : "none"}};
  for (const PlannedComm& one : planned_communicators(run_.runtime, run_.step.stage())) {
    plans["algorithms_" + one.name] = table_text(one.plan->algorithms, one.comm->size());
  }
  return plans;
}

// Returns what the run's files hold. It is compared on resume, whatever the files are called.
std::vector<DataAttribute> RunCheckpoints::recorded_contents() const {
  std::vector<DataAttribute> contents = describe_data(run_.data, run_.validation);
  if (!run_.rates.empty()) {
    contents.push_back({{"learning_rates", "schedule.file", optim::learning_rates_text(run_.rates)},
                        OnChange::kResults});
  }
  return contents;
}

// Compares the numbers of parameters, because a checkpoint of a model with more layers also holds
// all tensors of one with fewer.
void RunCheckpoints::check_parameters(const Checkpoint& checkpoint) const {
  std::int64_t held = 0;
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    if (tensor.name.starts_with("parameters/")) held += tensor.shape.elements();
  }
  const std::int64_t wanted = models::resolve(run_.config.model, {}).plan.parameters;
  if (held == wanted) return;
  throw CheckpointError(
      fmt::format("{}: holds a model of {} parameters, not of {}: model.* must be what they were",
                  checkpoint.path(), held, wanted));
}

// Throws CheckpointError that names the settings by which tensors are others, where any are.
void RunCheckpoints::refuse_other_model(const Checkpoint& checkpoint) const {
  std::vector<ChangedSetting> changes = changed_model(checkpoint, run_.config);
  if (changes.empty()) return;
  for (ChangedSetting& change : changes) change.on_change = OnChange::kOtherRun;
  throw CheckpointError(fmt::format(
      "{} is of another run: {}; {}, and --run.start_from {} begins another run with its weights",
      checkpoint.path(), list_of(changes, {OnChange::kOtherRun}),
      words_on_own_settings(run_.config), checkpoint.path()));
}

RunCheckpoints::Position RunCheckpoints::resume() {
  StartingPoint start(run_.runtime.world(), run_.folder, run_.config.run.resume);
  const std::optional<Checkpoint> checkpoint = start.open();
  Position position;
  if (checkpoint) {
    position = restore(*checkpoint);
  } else {
    begin();
  }
  const std::string rounding =
      words_on_rounding(run_.runtime.world(), run_.step.stage().options(), rounded_);
  if (!rounding.empty() && run_.runtime.rank() == 0) print_line(rounding);
  // This comes last, so that a start that is refused leaves the folder as it is.
  const bool trains = position.step < run_.config.run.steps;
  position.continues =
      start.settle(checkpoint, trains ? std::optional(run_.promise_broken) : std::nullopt);
  tokenizer_.write_folder(checkpoint);
  return position;
}

// Collective over the world. The first start of a run.
void RunCheckpoints::begin() {
  const Config::Run& run = run_.config.run;
  std::optional<Checkpoint> from;
  if (run.start_from) from = open_checkpoint_or_run(run_.runtime.world(), *run.start_from);
  if (!from || run.fresh != "none") {
    run_.step.stage().draw_initial_values(run_.device.context, static_cast<std::uint64_t>(run.seed),
                                          &rounded_);
  }
  if (from) take_weights(*from);
  run_.step.begin_averages([](const std::string& /*name*/) { return true; });
  run_.meetings.begin(/*step=*/0, /*fresh=*/true);
}

// Collective over the world. What is not taken keeps its initial values, the optimizer its zeros.
void RunCheckpoints::take_weights(const Checkpoint& checkpoint) {
  const Config::Run& run = run_.config.run;
  const models::Model model = models::resolve(run_.config.model, {});
  const bool fresh_head = run.fresh == "head";
  if (fresh_head && model.head.empty()) {
    throw ConfigError(
        "run.fresh is head, but in this model the output head is the embedding (model.tied), or it "
        "has none of its own: leave it out");
  }
  parallel::Stage& stage = run_.step.stage();
  std::vector<TensorSlice> slices = checkpoint_slices(stage, nullptr, false);
  const std::vector<std::string> fresh = fresh_head ? model.head : std::vector<std::string>();
  std::erase_if(slices, [&](const TensorSlice& slice) { return is_one_of(slice, fresh); });
  const std::vector<ChangedSetting> changes = changed_model(checkpoint, run_.config);
  const std::string words =
      changes.empty() ? ""
                      : "its model was another one: " + list_of(changes, {OnChange::kOtherRun});
  try {
    check_fit(checkpoint, slices, model.head);
    check_all_taken(checkpoint, slices, fresh);
  } catch (const CheckpointError& error) {
    if (words.empty()) throw;
    throw CheckpointError(fmt::format(
        "{}; {}; --config takes its settings from the config.ini of its run", error.what(), words));
  }
  // A fresh head learns other classes. A language model's embedding is of the old tokens still.
  const bool other_data =
      fresh_head && models::find_family(run_.config.model.family).task() == "classification";
  if (!other_data && !run.accept_changes) check_data(checkpoint, model);
  read_checkpoint(run_.device.context, checkpoint, stage, slices, &rounded_);
  foreign_format_ = foreign_format(checkpoint.info());
  foreign_context_ = foreign_context(checkpoint.info());
  check_finite(checkpoint, /*goes_on=*/false);
  tokenizer_.take_brought_files(checkpoint);
  if (run_.runtime.rank() != 0) return;
  print_line(fmt::format("starting from the weights of {}, step {}{}", checkpoint.path(),
                         checkpoint.info().step, fresh_head ? ", with a fresh head" : ""));
  if (!words.empty()) print_line(words);
}

// Collective over the world. A head that does not fit can be begun anew, so the head is checked
// after everything else, and by itself.
void RunCheckpoints::check_fit(const Checkpoint& checkpoint, std::span<const TensorSlice> slices,
                               const std::vector<std::string>& head) const {
  std::vector<TensorSlice> of_head, others;
  for (const TensorSlice& slice : slices) {
    (is_one_of(slice, head) ? of_head : others).push_back(slice);
  }
  checkpoint.check(run_.runtime.world(), others);
  try {
    checkpoint.check(run_.runtime.world(), of_head);
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("{}; --run.fresh head begins it anew", error.what()));
  }
}

// Throws DataError where the checkpoint's run learned from other tokens or other classes.
void RunCheckpoints::check_data(const Checkpoint& checkpoint, const models::Model& model) const {
  tasks::TrainedOn trained_on{checkpoint.path(), model.data, {}};
  for (const auto& [attribute, value] : checkpoint.info().extra) {
    trained_on.marks.push_back({attribute, {}, value});
  }
  run_.data.check_trained(trained_on);
  const std::string remark = run_.data.remark_on(trained_on);
  if (run_.runtime.rank() == 0 && !remark.empty()) print_line(remark);
}

// Collective over the world. A checkpoint of a model with more layers also holds all tensors of one
// with fewer.
void RunCheckpoints::check_all_taken(const Checkpoint& checkpoint,
                                     std::span<const TensorSlice> taken,
                                     const std::vector<std::string>& fresh) const {
  std::set<std::string_view> names;
  for (const TensorSlice& slice : taken) names.insert(slice.name);
  std::vector<std::int64_t> wanted;  // by tensor of the checkpoint
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    wanted.push_back(names.contains(tensor.name) ? 1 : 0);
  }
  run_.runtime.world().all_reduce_host(std::span(wanted), ReduceOp::kMax);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = checkpoint.contents().tensors[i].name;
    constexpr std::string_view kParameters = "parameters/";
    if (wanted[i] != 0 || !name.starts_with(kParameters)) continue;
    if (std::ranges::find(fresh, name.substr(kParameters.size())) != fresh.end()) continue;
    throw CheckpointError(
        fmt::format("{}: holds {}, which the model does not have: model.* must describe its model",
                    checkpoint.path(), name));
  }
}

// Returns the names of the parameters and states whose averages the checkpoint lacks.
std::set<std::string> RunCheckpoints::take_out_missing_averages(
    const Checkpoint& checkpoint, std::vector<TensorSlice>& slices) const {
  std::set<std::string> missing;
  const auto is_missing = [&](const TensorSlice& slice) {
    return is_average(slice.name) && checkpoint.contents().find(slice.name) == nullptr;
  };
  for (const TensorSlice& slice : slices) {
    if (is_missing(slice)) missing.insert(averaged_by(slice.name));
  }
  std::erase_if(slices, is_missing);
  return missing;
}

std::string RunCheckpoints::words_on_averages(const Checkpoint& checkpoint) const {
  const bool had =
      std::ranges::any_of(checkpoint.contents().tensors, is_average, &CheckpointTensor::name);
  if (had == run_.step.averages()) return "";
  return had ? "the average of the weights is dropped (optim.average none)"
             : "the average of the weights begins with these";
}

// An imported checkpoint knows of a run the model alone, with its tokens, and of that what the
// weights are for: dropout, smoothed labels and shorter texts belong to the training
// (models/README.md).
void RunCheckpoints::erase_what_imports_do_not_know(std::vector<ChangedSetting>& changes) const {
  const std::vector<tasks::DataMark> marks = run_.data.encoding();
  const std::int64_t context = models::resolve(run_.config.model, {}).plan.length;
  std::erase_if(changes, [&](const ChangedSetting& change) {
    const bool is_of_training = change.name == "model.dropout" ||
                                change.name == "model.label_smoothing" ||
                                (change.name == "model.context" && context < foreign_context_);
    const bool is_of_tokens =
        std::ranges::find(marks, change.name, &tasks::DataMark::setting) != marks.end();
    return is_of_training || !(is_of_tokens || change.name.starts_with("model."));
  });
}

RunCheckpoints::Position RunCheckpoints::restore(const Checkpoint& of_all) {
  const Checkpoint checkpoint = run_.meetings.of_island(of_all);
  tokenizer_.take_brought_files(checkpoint);
  parallel::Stage& stage = run_.step.stage();
  ops::Context& ctx = run_.device.context;
  // Imported weights have no optimizer: it starts with zeros.
  const bool imported = checkpoint.info().extra.contains(kImportedAttribute);
  std::vector<TensorSlice> slices =
      checkpoint_slices(stage, imported ? nullptr : &run_.step.optimizer(), false);
  const KeptState kept =
      imported ? KeptState()
               : kept_state(run_.runtime.world(), checkpoint, stage, run_.step.options().optimizer);
  std::erase_if(slices, [&](const TensorSlice& slice) { return kept.lacks(slice.name); });
  const std::set<std::string> fresh_averages = take_out_missing_averages(checkpoint, slices);
  ops::StepState state = ops::read_step_state(ctx);
  state.updates = checkpoint.info().step;  // the best guess for a checkpoint without a count
  // A run with another precision has stored no loss scale.
  for (TensorSlice& slice :
       step_state_slices(state, run_.step.options().optimizer, scales_dynamically())) {
    if (checkpoint.contents().find(slice.name)) slices.push_back(std::move(slice));
  }
  // Checks shapes first, because run.accept_changes cannot accept other shapes.
  try {
    checkpoint.check(run_.runtime.world(), slices);
    check_parameters(checkpoint);
  } catch (const CheckpointError&) {
    refuse_other_model(checkpoint);
    throw;
  }
  foreign_format_ = foreign_format(checkpoint.info());
  foreign_context_ = foreign_context(checkpoint.info());
  std::vector<ChangedSetting> changes = changes_since(checkpoint, run_.config, recorded_contents());
  if (imported) erase_what_imports_do_not_know(changes);
  note_groups_of_samples(checkpoint, changes);
  check_changes(changes, checkpoint, run_.config);
  read_checkpoint(ctx, checkpoint, stage, slices, &rounded_);
  check_finite(checkpoint, /*goes_on=*/true);
  if (kept.counts_anew) {
    state.updates = 0;
    state.rate_squares = 0.0;
  }
  ops::write_step_state(ctx, state);
  const std::string of_gradients = restore_kept_gradients(checkpoint);
  const std::vector<std::string> of_islands = run_.meetings.restore(of_all, slices);
  run_.step.begin_averages([&](const std::string& name) { return fresh_averages.contains(name); });
  if (run_.runtime.rank() == 0) {
    say_resumed(checkpoint, changes);
    for (const std::string& line : kept.lines) print_line(line);
    if (!of_gradients.empty()) print_line(of_gradients);
    for (const std::string& line : of_islands) print_line(line);
    const std::string averages = words_on_averages(checkpoint);
    if (!averages.empty()) print_line(averages);
  }
  Position position = {.step = checkpoint.info().step,
                       .samples = checkpoint.info().samples,
                       .changes = list_of(changes, {OnChange::kOtherRun, OnChange::kResults}),
                       .older_evaluations = !imported && evaluated_beginning(checkpoint),
                       .skipped_since = skipped_since(checkpoint.info())};
  // Earlier versions did not count.
  position.skipped_in_a_row = number_of_steps(checkpoint.info(), kSkippedInARowAttribute)
                                  .value_or(scales_dynamically() ? 0 : position.skipped());
  before_skipped_ = position.skipped_since
                        ? newest_before(checkpoint.path(), *position.skipped_since)
                        : checkpoint.path();
  const std::string skipped = position.words_on_skipped();
  if (!skipped.empty() && run_.runtime.rank() == 0) print_line(skipped);
  return position;
}

// Collective over the world. Returns a line for the user where what comm.compress has lost is not
// gone on with.
std::string RunCheckpoints::restore_kept_gradients(const Checkpoint& checkpoint) {
  const bool there = holds_kept_gradients(checkpoint);
  if (!run_.step.compresses()) {
    return there ? "what comm.compress has lost of gradients so far is dropped" : "";
  }
  if (!there) return "what comm.compress has lost so far is not known: it begins with nothing";
  ops::Context& ctx = run_.device.context;
  for (const nn::FlatGroup* group : run_.step.stage().trained_groups()) {
    ops::fill(ctx, group->gradient_shard(), 0.0f);  // what was frozen has kept nothing
  }
  std::vector<TensorSlice> kept = kept_gradient_slices(run_.step.stage(), false);
  std::erase_if(kept, [&](const TensorSlice& slice) {
    return checkpoint.contents().find(slice.name) == nullptr;
  });
  checkpoint.read(run_.grid.world(), kept);
  run_.step.take_kept();
  return "";
}

// Whether the checkpoint's run evaluated on some samples of the held-out data, from their
// beginning.
bool RunCheckpoints::evaluated_beginning(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  if (info.extra.contains(kEvaluationAttribute)) return false;
  try {
    return config_from_ini(info.config, checkpoint.path()).eval.batches.has_value();
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return true;
  }
}

// Collective over the world. What a model with states computes depends on which samples meet in
// its batch norms: those of a micro-batch, or of the micro-batches of all data replicas.
void RunCheckpoints::note_groups_of_samples(const Checkpoint& checkpoint,
                                            std::vector<ChangedSetting>& changes) const {
  const bool none = run_.step.stage().states().empty();
  if (run_.runtime.world().agree(none)) return;
  for (ChangedSetting& change : changes) {
    if (change.name == "batch.micro") change.on_change = OnChange::kResults;
  }
  if (!models::joins_replicas(run_.config.model)) return;
  const auto before = checkpoint.info().extra.find("grid");
  const std::string now = run_.grid.shape().to_string();
  if (before == checkpoint.info().extra.end() || before->second == now) return;
  changes.push_back({"the grid", before->second, now, OnChange::kResults});
}

// Whether data replicas, stages and schedules change no bit of what the checkpoint's run computed.
bool RunCheckpoints::keeps_bits(const Checkpoint& checkpoint) const {
  if (!run_.config.run.same_bits) return false;
  try {
    const Config before = config_from_ini(checkpoint.info().config, checkpoint.path());
    return before.run.same_bits && before.grid[Axis::kTensor] == run_.grid.shape()[Axis::kTensor];
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return false;
  }
}

// Describes a leap of the learning rate; empty if it goes on smoothly.
std::string RunCheckpoints::words_on_leap(const Checkpoint& checkpoint) const {
  try {
    const Config before = config_from_ini(checkpoint.info().config, checkpoint.path());
    return trireme::words_on_leap(before, run_.config, checkpoint.info().step);
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return "";
  }
}

void RunCheckpoints::say_resumed(const Checkpoint& checkpoint,
                                 const std::vector<ChangedSetting>& changes) const {
  print_line(fmt::format("going on from {}, step {}", checkpoint.path(), checkpoint.info().step));
  const std::string results = list_of(changes, {OnChange::kOtherRun, OnChange::kResults});
  if (!results.empty()) print_line("changed settings: " + results);
  if (const std::string leap = words_on_leap(checkpoint); !leap.empty()) print_line(leap);
  const std::vector<std::string> rounding = rounding_since(checkpoint, changes);
  if (!rounding.empty()) {
    print_line(fmt::format("results {}agree to rounding, not to the bit: {}",
                           results.empty() ? "will " : "would otherwise ",
                           fmt::join(rounding, "; ")));
  }
}

// Lists what changes the results by rounding: settings, the run's choices, the program, algorithms.
std::vector<std::string> RunCheckpoints::rounding_since(const Checkpoint& checkpoint,
                                                        std::vector<ChangedSetting> changes) const {
  const bool keeps = keeps_bits(checkpoint);
  std::erase_if(changes, [&](const ChangedSetting& change) {
    const bool kept = change.name == "grid.schedule" || change.name == "grid.chunks" ||
                      change.name == "grid.cut" || change.name == "batch.runs" ||
                      change.name.starts_with("shard.");
    return change.on_change != OnChange::kRounding || (keeps && kept);
  });
  std::vector<std::string> rounding;
  if (!changes.empty()) rounding.push_back(list_of(changes, {OnChange::kRounding}));
  const bool names_runs = std::ranges::count(changes, "batch.runs", &ChangedSetting::name) > 0;
  const std::map<std::string, std::string> choices =
      choices_before(checkpoint.info(), checkpoint.path());
  for (const auto& [key, value] : recorded_choices()) {
    const auto before = choices.find(key);
    if (before == choices.end() || before->second == value) continue;
    if ((key == "grid" && keeps) || (key == "batch_runs" && names_runs)) continue;
    rounding.push_back(fmt::format("{} was {}, is {}", key, before->second, value));
  }
  if (run_.step.compresses() && holds_kept_gradients(checkpoint)) {
    rounding.emplace_back(
        "each data replica goes on with the mean of what comm.compress has lost on all of them");
  }
  const std::string arithmetic = words_on_arithmetic(checkpoint);
  if (!arithmetic.empty()) rounding.push_back(arithmetic);
  // Algorithms change no bit where sums do not depend on them.
  if (!sums_depend_on_algorithm(run_.config.comm)) return rounding;
  for (const auto& [key, value] : recorded_plans()) {
    if (!key.starts_with("algorithms_")) continue;
    const auto before = checkpoint.info().extra.find(key);
    if (before == checkpoint.info().extra.end() || before->second == value) continue;
    rounding.push_back(key + " differ");
  }
  return rounding;
}

// What a checkpoint tells besides its tensors.
CheckpointInfo RunCheckpoints::info_of(const Position& position) const {
  CheckpointInfo info;
  info.step = position.step;
  info.samples = position.samples;
  info.seed = static_cast<std::uint64_t>(run_.config.run.seed);
  info.config = config_to_ini(with_absolute_paths(run_.config));
  info.extra = recorded_choices();
  info.extra.merge(recorded_plans());
  if (!run_.products.file.empty()) info.extra[kProductsAttribute] = run_.products.file;
  info.extra[kArithmeticAttribute] = std::to_string(ops::arithmetic_now());
  if (run_.promise_broken) info.extra[kBitsAttribute] = kBitsBroken;
  if (!run_.settled_rate.keys.empty()) info.extra[kSettledAttribute] = run_.settled_rate.keys;
  if (!foreign_format_.empty()) info.extra[kFormatAttribute] = foreign_format_;
  if (foreign_context_ > 0) info.extra[kContextAttribute] = std::to_string(foreign_context_);
  if (!position.older_evaluations) info.extra[kEvaluationAttribute] = "everywhere";
  if (position.skipped_since) {
    info.extra[kSkippedAttribute] = std::to_string(*position.skipped_since);
    info.extra[kSkippedInARowAttribute] = std::to_string(position.skipped_in_a_row);
  }
  for (const DataAttribute& attribute : recorded_contents()) {
    info.extra.emplace(attribute.mark.attribute, attribute.mark.value);
  }
  return info;
}

std::string RunCheckpoints::save(const Position& position) {
  CheckpointInfo info = info_of(position);
  CheckpointTexts texts;
  if (run_.runtime.rank() == 0) tokenizer_.add_to(info, texts);
  CheckpointOptions options;
  options.texts = &texts;
  options.keep = run_.config.checkpoint.keep;
  if (position.skipped_since && !before_skipped_.empty()) {
    options.spared = step_of_checkpoint(std::filesystem::path(before_skipped_).filename().string());
  }
  options.generation = run_.folder.generation();
  options.check_still_ours = [this] { run_.folder.check_still_ours(); };
  std::vector<TensorSlice> slices =
      checkpoint_slices(run_.step.stage(), &run_.step.optimizer(), true);
  ops::StepState state = ops::read_step_state(run_.device.context);
  if (run_.grid.world().rank() == 0) {
    for (TensorSlice& slice :
         step_state_slices(state, run_.step.options().optimizer, scales_dynamically())) {
      slices.push_back(std::move(slice));
    }
  }
  if (run_.step.compresses()) {
    run_.step.gather_kept();
    std::ranges::move(kept_gradient_slices(run_.step.stage(), true), std::back_inserter(slices));
  }
  run_.meetings.add_to(slices, info);
  std::string path = write_checkpoint(run_.runtime.world(), run_.runtime.recorder(),
                                      run_.folder.checkpoints(), info, slices, options);
  if (!position.skipped_since) before_skipped_ = path;
  return path;
}

void RunCheckpoints::save_outer(const std::string& path, const Position& position,
                                std::span<const TensorSlice> slices) const {
  CheckpointInfo info = info_of(position);
  CheckpointTexts texts;
  if (run_.runtime.rank() == 0) tokenizer_.add_to(info, texts);
  CheckpointOptions options;
  options.generation = run_.folder.generation();
  options.texts = &texts;
  write_checkpoint_to(run_.runtime.world(), run_.runtime.recorder(), path, info, slices, options);
}

void RunCheckpoints::check_same(const Checkpoint& checkpoint) const {
  const std::string changes = list_of(changes_since(checkpoint, run_.config, recorded_contents()),
                                      {OnChange::kOtherRun, OnChange::kResults});
  if (changes.empty()) return;
  throw ConfigError(fmt::format(
      "{}: is of a run with other settings: {}; give this job those of the run, or another "
      "run.folder",
      checkpoint.path(), changes));
}

}  // namespace trireme
