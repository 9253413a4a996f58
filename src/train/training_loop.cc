#include "train/training_loop.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/caught.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/base/text.h"
#include "trireme/base/wall_clock.h"
#include "trireme/comm/launcher.h"
#include "trireme/config/schedule_options.h"
#include "trireme/inference/evaluation.h"
#include "trireme/io/whole_file.h"
#include "trireme/parallel/copy_check.h"
#include "trireme/setup/finite_values.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/step_setup.h"
#include "trireme/topology/nccl_costs.h"

#include "train/fabric_recorder.h"

namespace trireme {
namespace {

constexpr const char* kNcclTable = "nccl-table.txt";  // in the run folder

// After this many steps in a row with non-finite gradients, the run has diverged.
constexpr int kMostSkippedSteps = 10;

// On the GPU of the first rank; nothing where nothing was connected.
std::string memory_of_connections(std::size_t bytes) {
  if (bytes == 0) return "";
  return fmt::format("; connections hold {} MiB of the GPU", mib_of(static_cast<double>(bytes)));
}

std::string nccl_tables(const ComputeDevice& device) {
  return device.nccl_tables ? join_nccl_tables(*device.nccl_tables) : "";
}

void write_nccl_tables(const RunFolder& folder, const std::string& text) {
  const std::string file = folder.file(kNcclTable);
  if (text.empty()) remove_if_there(file, ExitStatus::kRunFolder);
  if (!text.empty()) write_whole_file(file, text);
}

// Whether the search for a loss scale may cause overflow, because the scale can still go down.
bool searches_scale(const Config& config, const StepMetrics& metrics) {
  const ops::LossScaling scaling = loss_scaling(config);
  return !scaling.is_fixed() && *metrics.loss_scale > static_cast<double>(scaling.smallest);
}

optim::LearningRateSchedule curve_of(const PreparedRun& run) {
  optim::LearningRateOptions curve = schedule_options(run.config).value();
  curve.points = run.rates;
  return optim::LearningRateSchedule(curve);
}

}  // namespace

TrainingLoop::TrainingLoop(PreparedRun& run, const StopSignals& signals)
    : prepared_(run),
      signals_(signals),
      hang_limit_(run.config.comm.timeout),
      meetings_(run),
      checkpoints_(RunCheckpoints::Run{.runtime = run.runtime,
                                       .config = run.config,
                                       .device = run.device,
                                       .grid = run.grid,
                                       .step = run.step,
                                       .meetings = meetings_,
                                       .data = *run.train_data,
                                       .validation = run.validation_data.get(),
                                       .folder = run.folder,
                                       .attention = run.attention,
                                       .products = run.products,
                                       .network = run.network,
                                       .rates = run.rates,
                                       .settled_rate = run.settled_rate,
                                       .promise_broken = run.bits.promise_broken}),
      start_(resume()),
      expected_checkpoint_(expected_checkpoint_seconds()),
      communication_(watch_communication()),
      journal_(open_journal()),
      rank_watch_(watch_ranks()),
      balance_(balance_shares()),
      tracer_(trace_steps()),
      deadline_(deadline_of_job()),
      cadence_(run.config.checkpoint.every, run.config.checkpoint.mtbf.value_or(0.0) * 3600.0,
               expected_checkpoint_, start_.step),
      queue_(run.device.context, run.islands, run.grid, run.runtime.clock(), signals,
             run.samples_of_step() * run.task.units_of_sample(run.sample)),
      evaluated_(run),
      rate_(curve_of(run)),
      skipped_since_(start_.skipped_since),
      skipped_in_a_row_(start_.skipped_in_a_row),
      step_number_(start_.step),
      samples_(start_.samples),
      older_evaluations_(start_.older_evaluations) {
  run.phases.done("journal");
}

// Collective.
RunCheckpoints::Position TrainingLoop::resume() {
  Runtime& runtime = prepared_.runtime;
  runtime.set_timeout(hang_limit_.seconds_with_checkpoint(prepared_.checkpoint_bytes()));
  RunCheckpoints::Position position = checkpoints_.resume();
  runtime.set_timeout(hang_limit_.seconds());
  prepared_.phases.done("checkpoint");
  return position;
}

// On the leading rank, which tells what the run is, and writes it into the folder.
std::optional<CommunicationWatch> TrainingLoop::watch_communication() {
  if (!leads()) return std::nullopt;
  PreparedRun& run = prepared_;
  std::optional<CommunicationWatch> watch(std::in_place, run.runtime, run.step.stage(), run.network,
                                          run.config.comm, run.tuner ? &*run.tuner : nullptr,
                                          run.folder.file("communication.json"));
  tell_start(watch->row());
  // Where no step is left to train, they stay as they are.
  if (is_member() || start_.step < total_steps()) write_records();
  return watch;
}

// On the leading rank. `network`: the table's row on what communication was planned for.
void TrainingLoop::tell_start(const std::string& network) const {
  const PreparedRun& run = prepared_;
  print_line(startup_table({.config = run.config,
                            .plan = run.model.plan,
                            .step = run.step,
                            .device = run.device,
                            .attention = run.attention,
                            .data = *run.train_data,
                            .network = network}));
  if (!run.products.line.empty()) print_line(run.products.line);
  if (!run.why_micro.empty()) print_line(run.why_micro);
  if (!run.why_shares.empty()) print_line(run.why_shares);
  if (!run.why_cut.empty()) print_line(run.why_cut);
  if (!run.settled_rate.said.empty()) print_line(run.settled_rate.said);
  const Config::Optim& optim = run.config.optim;
  if (optim.average != "none" && std::int64_t{optim.average_from} >= total_steps()) {
    print_line(fmt::format(
        "optim.average_from {}: no step up to run.steps {} is in the average, which stays equal "
        "to the weights",
        write_value(optim.average_from), total_steps()));
  }
  if (!run.placement.why.empty()) print_line(run.placement.why);
}

// On the leading rank: what this start trains with.
void TrainingLoop::write_records() const {
  const PreparedRun& run = prepared_;
  run.folder.check_still_ours();
  write_whole_file(run.folder.file("config.ini"), config_to_ini(with_absolute_paths(run.config)));
  write_fabric_record(run.fabric, run.folder.file("fabric.json"));
  write_nccl_tables(run.folder, nccl_tables(run.device));
}

RunJournal TrainingLoop::open_journal() {
  const bool steps_by_time = takes_steps_by_time(prepared_.config);
  return RunJournal({.leads = leads(),
                     .folder = prepared_.folder.path(),
                     .first_step = start_.step,
                     .total_steps = steps_by_time ? std::nullopt : std::optional(total_steps()),
                     .log_every = prepared_.config.log.every,
                     .tensorboard = prepared_.config.log.tensorboard,
                     .unit = prepared_.task.unit(),
                     .goes_on = start_.continues,
                     .before_report = [this] { communication_->write(); }});
}

// On GPUs the host's times are those of queueing, and show no straggler.
RankWatch TrainingLoop::watch_ranks() const {
  const bool on_cpu = prepared_.device.context.device.kind == DeviceKind::kCpu;
  return RankWatch(
      prepared_.grid,
      {.every = on_cpu ? prepared_.config.log.stragglers : 0,
       .micro_batches = prepared_.step.options().work.count(prepared_.grid.index(kDataAxes)),
       .file = prepared_.folder.file("ranks.json")});
}

// Nothing where no share ever changes.
std::optional<ShareBalance> TrainingLoop::balance_shares() const {
  const parallel::WorkSplit& work = prepared_.step.options().work;
  const bool on_cpu = prepared_.device.context.device.kind == DeviceKind::kCpu;
  if (!prepared_.config.batch.balance.is_auto() || !on_cpu || work.replicas() == 1) return {};
  return ShareBalance(BatchBalance::most_of_auto(work.micro_batches(), work.replicas()));
}

std::optional<Tracer> TrainingLoop::trace_steps() const {
  const std::optional<std::string>& steps = prepared_.config.log.trace;
  if (!steps) return std::nullopt;
  return std::optional<Tracer>(std::in_place, prepared_.grid, prepared_.device.context.stream,
                               parse_step_range(*steps), prepared_.folder.file("trace.json"));
}

std::optional<Deadline> TrainingLoop::deadline_of_job() const {
  if (!leads() || (!is_member() && start_.step >= total_steps())) return std::nullopt;
  return Deadline(job_end_time(), expected_checkpoint_, prepared_.config.checkpoint.margin,
                  &job_end_time_by_squeue);
}

// Collective. Returns how long the last checkpoint of the run took, or a guess.
double TrainingLoop::expected_checkpoint_seconds() const {
  double known = 0.0;
  if (leads()) {
    known = last_checkpoint_seconds(read_events(prepared_.folder.file("events.jsonl"))).value_or(0);
  }
  known = prepared_.runtime.world().all_reduce_host(known, ReduceOp::kMax);
  if (known > 0.0) return known;
  return guessed_checkpoint_seconds(static_cast<double>(prepared_.checkpoint_bytes()));
}

ExitStatus TrainingLoop::run() {
  if (!is_member() && step_number_ >= total_steps()) {
    journal_.say(fmt::format("all {} steps are done: nothing to train", total_steps()));
    return ExitStatus::kDone;
  }
  start_record();
  try {
    if (is_member()) make_member();
    return loop();
  } catch (const RunFolderError&) {
    throw;  // nothing can be written there, or it is another job's now
  } catch (const DivergedError&) {
    throw;  // it is recorded
  } catch (const std::exception&) {
    journal_.failed(std::max(start_.step, last_.step), caught(std::current_exception()).what());
    throw;
  }
}

// Collective.
void TrainingLoop::make_member() {
  member_.emplace(RunMember::Parts{.run = prepared_,
                                   .checkpoints = checkpoints_,
                                   .journal = journal_,
                                   .wants_stop = [this] { return wants_stop(); },
                                   .steps = start_.step});
}

// Collective. Connects the ranks and records that the first step begins.
void TrainingLoop::start_record() {
  PreparedRun& run = prepared_;
  const std::size_t taken = run.step.connect(run.config.batch.micro, run.model.plan.length);
  run.phases.done("connections");
  rank_watch_.begin();
  note_start(taken);
  if (run.tuner) {
    tell_tuned();
    run.tuner->steps_begin(run.step.stage());
  }
  if (!run.bits.said.empty()) {
    journal_.say(run.bits.said);
    journal_.note(step_number_, "changed", 0.0, run.bits.said);
  }
  if (!start_.changes.empty()) journal_.note(step_number_, "changed", 0.0, start_.changes);
  if (!run.network.remarks.empty()) {
    journal_.note(step_number_, "network", 0.0,
                  fmt::format("{}", fmt::join(run.network.remarks, "; ")));
  }
}

// `connections` is the memory that they hold.
void TrainingLoop::note_start(std::size_t connections) {
  const PreparedRun& run = prepared_;
  const nn::TrainedParameters& trained = run.step.stage().options().trained;
  const std::string planned = leads() ? communication_->text(run.device.carrier) : "";
  journal_.started(
      step_number_, run.phases.seconds(),
      fmt::format("{}grid {}, first rank on {}; {} initial values drawn; {}attention by "
                  "{}; collectives {}; {}{}{}",
                  run.islands.count() > 1 ? counted(run.islands.count(), "island") + " of " : "",
                  run.shape.to_string(), node_name(), run.step.stage().drawn(),
                  trained.all() ? ""
                                : fmt::format("{} of {} parameters train; ", trained.total(),
                                              run.model.plan.parameters),
                  run.attention.text, planned.empty() ? "by default" : "for " + planned,
                  run.phases.text(), memory_of_connections(connections),
                  leads() && !nccl_tables(run.device).empty()
                      ? fmt::format("; NCCL chooses by {}", kNcclTable)
                      : ""),
      run.placement.places);
}

ExitStatus TrainingLoop::loop() {
  while (true) {
    const std::optional<Leg> leg = next_leg();
    if (leg) train(*leg);
    if (stops()) {
      if (!member_ || last_.step > 0) save();  // else it has learned nothing yet
      tell_skipped();
      trace_done(/*last=*/true);
      journal_.stopped(step_number_,
                       late_ ? "before the job's time limit" : words_on_sender(signal_));
      return ExitStatus::kRequeue;
    }
    if (!leg) break;
  }
  if (member_ && last_.step == 0) {
    journal_.say(fmt::format("the run is done, all {} steps: nothing to train", total_steps()));
    return ExitStatus::kDone;
  }
  tell_skipped();
  journal_.finished(last_);
  return ExitStatus::kDone;
}

// Whether the run ends here for this job, though there is more to do.
bool TrainingLoop::stops() const {
  return stop_ && (member_ ? !member_->finished() : step_number_ < total_steps());
}

// Collective. Nothing after the last step; nor where a member is to stop while it waits.
std::optional<TrainingLoop::Leg> TrainingLoop::next_leg() {
  if (!member_) {
    const std::int64_t left = total_steps() - step_number_;
    if (left == 0) return std::nullopt;
    return Leg{total_steps(), prepared_.samples_of_steps(samples_, left)};
  }
  std::optional<RunMember::Leg> next = wait_for_state();
  if (!next) return std::nullopt;
  step_number_ = member_->steps();
  if (next->is_own && evaluates_outer(*next)) evaluate_after(next->first);
  return Leg{step_number_ + next->steps, prepared_.samples_of_steps(next->samples, next->steps),
             std::move(next)};
}

// Collective. The state that a member goes on from.
std::optional<RunMember::Leg> TrainingLoop::wait_for_state() {
  Runtime& runtime = prepared_.runtime;
  const FlightRecorder::Phase phase(runtime.recorder(), "outer step");
  runtime.set_timeout(hang_limit_.seconds_with_checkpoint(prepared_.checkpoint_bytes()));
  std::optional<RunMember::Leg> next = member_->next();
  runtime.set_timeout(hang_limit_.seconds());
  if (member_->finished() && member_->made_last()) {
    if (evaluates()) evaluate_after(total_steps());
  }
  if (!next && !member_->finished()) note_stop();
  return next;
}

// Collective. A member was told to stop while it waited.
void TrainingLoop::note_stop() {
  stop_ = true;
  signal_ = prepared_.runtime.world().all_reduce_host(signals_.arrived(), ReduceOp::kMax);
}

// Whether outer weights are to be evaluated that the leg begins with.
bool TrainingLoop::evaluates_outer(const RunMember::Leg& leg) const {
  const std::int64_t every = prepared_.config.eval.every;
  const std::int64_t before = leg.first - steps_between_meetings(prepared_.config).value();
  return evaluates() && leg.first > 0 && leg.first / every > before / every;
}

// Collective. Trains the steps of a leg, as long as nobody wants to stop.
void TrainingLoop::train(const Leg& leg) {
  const auto reader = prepared_.train_data->read_steps(leg.samples, prepared_.config.batch.micro,
                                                       read_for(prepared_.step.stage()));
  const std::int64_t first = step_number_;
  targets_ = 0;
  seconds_of_steps_ = 0;
  while (step_number_ < leg.end && !stop_) {
    if (tracer_) tracer_->before(step_number_ + 1);
    const double rate = learning_rate(leg, step_number_ - first);
    for (const StepQueue::Known& step : train_step(*reader, rate, leg.end)) tell(step);
    if (prepared_.tuner) {
      prepared_.tuner->step_done();
      tell_tuned();
    }
    if (meetings_.due(step_number_)) meet_now();
    if (checks_copies_now()) check_copies_now();
    if (evaluates_now()) evaluate_after(step_number_);
    const bool other_shares = saves_now() && !stops() && save();
    trace_done(/*last=*/step_number_ == total_steps());
    if (other_shares) break;  // what was read ahead is of those before
  }
  if (!member_ || step_number_ == first) return;
  settle_all();
  deliver(step_number_ - first);
}

// Collective.
void TrainingLoop::deliver(std::int64_t steps) {
  Runtime& runtime = prepared_.runtime;
  const FlightRecorder::Phase phase(runtime.recorder(), "delivery");
  const std::int64_t bytes = prepared_.checkpoint_bytes();
  runtime.set_timeout(hang_limit_.seconds_with_checkpoint(bytes));
  member_->deliver(steps, targets_, seconds_of_steps_ / static_cast<double>(steps));
  runtime.set_timeout(hang_limit_.seconds());
}

// The rate of the leg's i-th step.
double TrainingLoop::learning_rate(const Leg& leg, std::int64_t i) const {
  if (!leg.of_member) return rate_.at(step_number_);
  return rate_.at(leg.of_member->position(i)) * member_->warm_up();
}

// Queues a step. Returns the steps that became known.
std::vector<StepQueue::Known> TrainingLoop::train_step(tasks::StepReader& reader,
                                                       double learning_rate, std::int64_t end) {
  const FlightRecorder::Phase phase(prepared_.runtime.recorder(), "step", step_number_ + 1);
  queue_step(reader, learning_rate);
  const bool pauses = stop_ || step_number_ == end || meetings_.due(step_number_) ||
                      checks_copies_now() || evaluates_now() || saves_now();
  return queue_.settle(pauses ? 0 : queue_.ahead());
}

void TrainingLoop::queue_step(tasks::StepReader& reader, double learning_rate) {
  const Config& config = prepared_.config;
  const StepQueue::Mark begin = queue_.mark();
  if (leads()) signals_.step_begins(last_.step_seconds);
  const double waited_before = reader.wait_seconds();
  const std::vector<nn::MicroBatch> batches = [&] {
    const FlightRecorder::Phase phase(prepared_.runtime.recorder(), "read data");
    reader.read();
    return reader.micro_batches(prepared_.device.context);
  }();
  const std::uint64_t key = philox_key(static_cast<std::uint64_t>(config.run.seed),
                                       fmt::format("dropout of step {}", step_number_));
  const parallel::QueuedStep step = prepared_.step.queue(
      batches, step_number_ + 1, static_cast<float>(learning_rate), key, wants_stop());
  if (!step.news().empty()) journal_.say(step.news());
  stop_ = stop_ || on_some_island(step.stop());
  meetings_.seen(step.targets());
  targets_ += step.targets();
  if (member_) member_->step_done();
  ++step_number_;
  samples_ += prepared_.samples_of_step();
  StepMetrics metrics;
  metrics.step = step_number_;
  metrics.learning_rate = learning_rate;
  if (config.run.precision == "fp16") metrics.loss_scale.emplace();
  metrics.units = samples_ * prepared_.task.units_of_sample(prepared_.sample);
  metrics.wait_data_seconds = reader.wait_seconds() - waited_before;
  queue_.push(begin, step, metrics);
}

bool TrainingLoop::on_some_island(bool here) const {
  if (prepared_.islands.count() == 1) return here;
  return !prepared_.islands.across().agree(!here);
}

// Whether this rank wants the step that now begins to be the last. Only the leading rank looks at
// the time.
bool TrainingLoop::wants_stop() {
  const std::int64_t every = prepared_.config.eval.every;
  const Deadline::Ahead ahead = {
      .evaluations = evaluates() ? due(every, step_number_ + 1) + due(every, step_number_ + 2) : 0,
      .checkpoint = cadence_.due(1 + queued_steps()) || step_number_ + 1 == total_steps(),
      .queued_steps = static_cast<int>(queued_steps())};
  late_ = late_ || (deadline_ && deadline_->wants_stop(unix_seconds(), ahead));
  return late_ || signals_.arrived() != 0;
}

// Reports a step that is known. Called in the order of steps.
void TrainingLoop::tell(const StepQueue::Known& step) {
  const StepMetrics& metrics = last_ = step.metrics;
  signal_ = std::max(signal_, step.signal);
  stop_ = stop_ || step.signal != 0;
  rank_watch_.add(step.seconds, step.wait_data_seconds, step.comm_seconds, metrics.step_seconds);
  cadence_.step_took(metrics.step_seconds);
  seconds_of_steps_ += metrics.step_seconds;
  hang_limit_.step_took(metrics.step_seconds);
  prepared_.runtime.set_timeout(hang_limit_.seconds());
  if (deadline_) deadline_->step_took(metrics.step_seconds);
  journal_.step(metrics);
  for (const std::string& said : rank_watch_.look(metrics.step)) {
    journal_.straggler(metrics.step, said);
  }
  if (const RankTable* window = rank_watch_.ended(); window != nullptr && balance_) {
    balance_->look(*window);
  }
  count_skipped(metrics);
}

void TrainingLoop::count_skipped(const StepMetrics& metrics) {
  if (metrics.no_targets) return;  // it tells nothing of the weights
  if (!metrics.skipped) skipped_since_.reset();
  if (metrics.skipped && !skipped_since_) skipped_since_ = metrics.step;
  const bool counts = metrics.skipped && !searches_scale(prepared_.config, metrics);
  skipped_in_a_row_ = counts ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ < kMostSkippedSteps) return;
  end_diverged(fmt::format("the last {} steps had non-finite gradients (loss {})",
                           skipped_in_a_row_, metrics.loss));
}

// All ranks end here, and none before the report is written.
void TrainingLoop::end_diverged(const std::string& what) {
  const std::string why = what + "; " + checkpoints_.words_on_way_back();
  journal_.failed_everywhere(last_.step, why);
  prepared_.runtime.world().barrier().wait_host();
  throw DivergedError(why);
}

void TrainingLoop::settle_all() {
  for (const StepQueue::Known& step : queue_.settle(0)) tell(step);
}

// Collective, between steps.
void TrainingLoop::tell_tuned() {
  for (const std::string& found : prepared_.tuner->news()) {
    journal_.say("comm.tune: " + found);
    journal_.note(step_number_, "tuned", 0.0, found);
  }
}

// The number of queued steps. They do not count yet for what is due.
std::int64_t TrainingLoop::queued_steps() const {
  return static_cast<std::int64_t>(queue_.size());
}

// True after every `every`-th step and after the last one. 0: only after the last one.
bool TrainingLoop::due(std::int64_t every, std::int64_t step) const {
  return step == total_steps() || (every > 0 && step % every == 0);
}

bool TrainingLoop::checks_copies_now() const {
  const std::int64_t every = prepared_.config.check.copies;
  return every > 0 && due(every, step_number_);
}

bool TrainingLoop::evaluates() const {
  return prepared_.validation_data && prepared_.config.eval.every > 0;
}

// What members evaluate are outer weights.
bool TrainingLoop::evaluates_now() const {
  return !member_ && evaluates() && due(prepared_.config.eval.every, step_number_);
}

bool TrainingLoop::saves_now() const {
  return cadence_.due(queued_steps()) || (!member_ && step_number_ == total_steps());
}

void TrainingLoop::meet_now() {
  settle_all();
  const FlightRecorder::Phase phase(prepared_.runtime.recorder(), "meeting");
  for (const std::string& line : meetings_.after(step_number_)) {
    journal_.say(line);
    journal_.note(step_number_, "island", 0.0, line);
  }
}

// Called before anything else is done with the weights.
void TrainingLoop::check_copies_now() {
  settle_all();
  const FlightRecorder::Phase phase(prepared_.runtime.recorder(), "check copies");
  parallel::check_copies(prepared_.device.context, prepared_.step.stage(),
                         prepared_.step.optimizer(), step_number_);
}

void TrainingLoop::evaluate_after(std::int64_t step) {
  settle_all();
  const Config& config = prepared_.config;
  const FlightRecorder::Phase phase(prepared_.runtime.recorder(), "evaluation");
  RunningClock& clock = prepared_.runtime.clock();
  const double begin = clock.seconds();
  std::optional<std::int64_t> most;
  if (config.eval.batches) {
    most = *config.eval.batches * (config.batch.global / config.batch.micro);
  }
  meetings_.show();
  evaluated_.show(step);
  const nn::EvaluationSums sums =
      evaluate(prepared_.step.executor(), *prepared_.validation_data, config.batch.micro, most);
  evaluated_.hide();
  meetings_.hide();
  const double seconds = clock.seconds() - begin;
  if (deadline_) deadline_->evaluation_took(seconds);
  if (sums.targets == 0) {
    journal_.say(fmt::format(
        "step {}: evaluation without one target, so there is no loss ({:.1f} s)", step, seconds));
    return;
  }
  tell_older_evaluations(most);
  Evaluation evaluation{.step = step,
                        .loss = sums.mean_loss(),
                        .seconds = seconds,
                        .of_average = config.eval.weights == "average"};
  if (sums.correct) {
    evaluation.top1 = sums.share(sums.correct->top1);
    evaluation.top5 = sums.share(sums.correct->top5);
  }
  journal_.evaluation(evaluation, prepared_.task.measures(sums));
}

// Once: a checkpoint from the time when a part of the held-out data was its beginning.
void TrainingLoop::tell_older_evaluations(std::optional<std::int64_t> most) {
  if (!std::exchange(older_evaluations_, false)) return;
  if (takes_all(*prepared_.validation_data, prepared_.config.batch.micro, most)) return;
  const std::string what = fmt::format(
      "eval.batches {} now reads samples from everywhere in the held-out data: losses of "
      "evaluations up to step {} were those of its beginning, so they cannot be compared",
      *prepared_.config.eval.batches, start_.step);
  journal_.say(what);
  journal_.note(step_number_, "changed", 0.0, what);
}

// The position after all steps so far; none is queued.
RunCheckpoints::Position TrainingLoop::position() const {
  return {.step = step_number_,
          .samples = samples_,
          .older_evaluations = older_evaluations_,
          .skipped_since = skipped_since_,
          .skipped_in_a_row = skipped_in_a_row_};
}

// Collective. No step repairs weights that are NaN or infinite, so the run ends instead of writing
// them.
void TrainingLoop::check_weights() {
  const std::string fault =
      fault_of_weights(prepared_.device.context, prepared_.step.stage(), prepared_.runtime.world());
  if (fault.empty()) return;
  const std::string skipped = position().words_on_skipped();
  end_diverged(skipped.empty() ? fault : fmt::format("{}; {}", skipped, fault));
}

void TrainingLoop::tell_skipped() {
  const std::string skipped = position().words_on_skipped();
  if (!skipped.empty()) journal_.say(skipped);
}

// Collective, where no step is queued. Returns whether the replicas now have other shares.
bool TrainingLoop::change_shares() {
  if (!balance_ || step_number_ == total_steps()) return false;
  const std::optional<ShareBalance::Change> change = balance_->change();  // on the leading rank
  const auto replicas = static_cast<std::size_t>(prepared_.step.options().work.replicas());
  std::vector<std::int64_t> shares(replicas, 0);
  if (leads() && change) shares.assign(change->shares.begin(), change->shares.end());
  prepared_.runtime.world().all_reduce_host(std::span<std::int64_t>(shares), ReduceOp::kMax);
  if (shares.front() == 0) return false;
  prepared_.share({shares.begin(), shares.end()});
  rank_watch_.work_changed(prepared_.step.options().work);
  balance_->begin();
  if (change) {
    journal_.say(change->why);
    journal_.note(step_number_, "balance", 0.0, change->why);
  }
  return true;
}

// Returns whether steps from now on have other samples on each replica. The checkpoint records
// their shares.
bool TrainingLoop::save() {
  settle_all();
  const bool changed = change_shares();
  Runtime& runtime = prepared_.runtime;
  const std::int64_t bytes = prepared_.checkpoint_bytes();
  const FlightRecorder::Phase phase(runtime.recorder(), "checkpoint");
  const double begin = runtime.clock().seconds();
  runtime.set_timeout(hang_limit_.seconds_with_checkpoint(bytes));
  check_weights();
  evaluated_.prepare_checkpoint(step_number_);
  const std::string path = checkpoints_.save(position());
  const double seconds =
      runtime.world().all_reduce_host(runtime.clock().seconds() - begin, ReduceOp::kMax);
  hang_limit_.checkpoint_took(bytes, seconds);
  runtime.set_timeout(hang_limit_.seconds());
  cadence_.checkpoint_took(seconds);
  if (deadline_) deadline_->checkpoint_took(seconds);
  const bool more = step_number_ < total_steps();
  journal_.checkpoint(step_number_, path, seconds, more ? cadence_.steps_between() : std::nullopt);
  return changed;
}

void TrainingLoop::trace_done(bool last) {
  if (!tracer_) return;
  const std::string said = tracer_->after(step_number_, last);
  if (!said.empty()) journal_.say(said);
}

}  // namespace trireme
