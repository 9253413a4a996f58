#include "trireme/train/trainer.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/base/wall_clock.h"
#include "trireme/comm/launcher.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_folder.h"
#include "trireme/io/whole_file.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/copy_check.h"
#include "trireme/tasks/task.h"
#include "trireme/topology/nccl_costs.h"
#include "trireme/train/checkpoint_cadence.h"
#include "trireme/train/communication.h"
#include "trireme/train/compute_device.h"
#include "trireme/train/data_request.h"
#include "trireme/train/deadline.h"
#include "trireme/train/dry_run_input.h"
#include "trireme/train/evaluation.h"
#include "trireme/train/hang_limit.h"
#include "trireme/train/memory_check.h"
#include "trireme/train/nearest_setting.h"
#include "trireme/train/run_grid.h"
#include "trireme/train/step_setup.h"
#include "trireme/train/step_traffic.h"

#include "train/algorithm_tuner.h"
#include "train/communication_watch.h"
#include "train/fabric_recorder.h"
#include "train/grid_placement.h"
#include "train/rank_watch.h"
#include "train/run_checkpoints.h"
#include "train/run_journal.h"
#include "train/same_bits.h"
#include "train/shard_group.h"
#include "train/startup_phases.h"
#include "train/step_queue.h"
#include "train/tracer.h"

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

class Trainer {
 public:
  Trainer(Runtime& runtime, const Config& config, const StopSignals& signals,
          std::optional<ComputeDevice> device)
      : phases_(runtime.startup()),
        runtime_(runtime),
        signals_(signals),
        config_(config),
        task_(tasks::task_of(config.model)),
        sample_(models::sample_shape(config.model)),
        hang_limit_(config.comm.timeout),
        bits_(settle_same_bits(runtime.world(), config_)),
        device_(device ? std::move(*device)
                       : choose_compute_device(runtime, device_request(config_))),
        network_(plan_communicators()),
        shape_(resolve_run_grid(config_, runtime_.size())) {
    open_model_and_data();
    // This comes last, so that a faulty configuration or missing data leave no folder behind.
    folder_.emplace(runtime.world(), config.run.folder);
    phases_.done("folder");
  }

  ExitStatus run() {
    checkpoints_.emplace(RunCheckpoints::Run{.runtime = runtime_,
                                             .config = config_,
                                             .device = device_,
                                             .grid = *grid_,
                                             .step = *step_,
                                             .data = *train_data_,
                                             .validation = validation_data_.get(),
                                             .folder = *folder_,
                                             .attention = attention_,
                                             .network = network_,
                                             .bits_parted = bits_.parted});
    runtime_.set_timeout(hang_limit_.seconds_with_checkpoint(checkpoint_bytes()));
    const RunCheckpoints::Position position = checkpoints_->resume();
    runtime_.set_timeout(hang_limit_.seconds());
    step_number_ = position.step;
    samples_ = position.samples;
    phases_.done("checkpoint");
    if (leads()) {
      communication_.emplace(runtime_, *grid_, network_, config_.comm, tuner_ ? &*tuner_ : nullptr,
                             folder_->file("communication.json"));
      print_line(startup_table(config_, plan_, *step_, device_, attention_, *train_data_,
                               communication_->text(device_.carrier)));
      if (!placement_.why.empty()) print_line(placement_.why);
      write_config();
      write_fabric_record(fabric_, folder_->file("fabric.json"));
      write_nccl_tables_used();
    }
    journal_.emplace(RunJournal::Setting{.leads = leads(),
                                         .folder = folder_->path(),
                                         .first_step = step_number_,
                                         .total_steps = config_.run.steps,
                                         .log_every = config_.log.every,
                                         .tensorboard = config_.log.tensorboard,
                                         .unit = task_.unit(),
                                         .goes_on = position.continues,
                                         .before_report = [this] { communication_->write(); }});
    // On GPUs the host's times are those of queueing, and show no straggler.
    const bool on_cpu = ctx_.device.kind == DeviceKind::kCpu;
    rank_watch_.emplace(
        *grid_, RankWatch::Setting{.every = on_cpu ? config_.log.stragglers : 0,
                                   .micro_batches = static_cast<int>(micro_batches().size()),
                                   .file = folder_->file("ranks.json")});
    if (config_.log.trace) {
      tracer_.emplace(*grid_, ctx_.stream, parse_step_range(*config_.log.trace),
                      folder_->file("trace.json"));
    }
    if (step_number_ >= config_.run.steps) {
      journal_->say(
          fmt::format("all {} steps are done: nothing to train", std::int64_t{config_.run.steps}));
      return ExitStatus::kDone;
    }
    if (leads()) {
      deadline_.emplace(job_end_time(), guessed_checkpoint_seconds(), config_.checkpoint.margin);
    }
    cadence_.emplace(config_.checkpoint.every, config_.checkpoint.mtbf.value_or(0.0) * 3600.0,
                     guessed_checkpoint_seconds(), step_number_);
    phases_.done("journal");
    const std::size_t taken = step_->connect(config_.batch.micro, plan_.length);
    phases_.done("connections");
    journal_->started(
        step_number_, phases_.seconds(),
        fmt::format("grid {}, first rank on {}; {} initial values drawn; attention by "
                    "{}; collectives {}; {}{}{}",
                    shape_.to_string(), node_name(), step_->stage().drawn(), attention_.text,
                    text_of_collectives(), phases_.text(), memory_of_connections(taken),
                    leads() && !nccl_tables().empty()
                        ? fmt::format("; NCCL chooses by {}", kNcclTable)
                        : ""),
        placement_.places);
    if (tuner_) {
      tell_tuned();
      tuner_->steps_begin();
    }
    if (!bits_.said.empty()) {
      journal_->say(bits_.said);
      journal_->note(step_number_, "changed", 0.0, bits_.said);
    }
    if (!position.changes.empty()) journal_->note(step_number_, "changed", 0.0, position.changes);
    if (!network_.remarks.empty()) {
      journal_->note(step_number_, "network", 0.0,
                     fmt::format("{}", fmt::join(network_.remarks, "; ")));
    }
    try {
      return loop();
    } catch (const RunFolderError&) {
      throw;  // nothing can be written there, or it is another job's now
    } catch (const DivergedError&) {
      throw;  // it is recorded
    } catch (const std::exception& error) {
      journal_->failed(std::max(position.step, last_.step), error.what());
      throw;
    }
  }

 private:
  bool leads() const { return runtime_.rank() == 0; }

  // Collective. Before the grid makes its communicators.
  NetworkOfJob plan_communicators() {
    NetworkOfJob network = read_job_network(runtime_, config_.comm.network);
    if (leads()) {
      for (const std::string& remark : network.remarks) report_line("comm.network: " + remark);
    }
    trireme::plan_communicators(runtime_, network, config_.comm);
    return network;
  }

  // Collective.
  void open_model_and_data() {
    // The keys of the model determine what a sample is, and the data determine how many tokens or
    // classes there are.
    train_data_ = task_.open(training_data(config_), runtime_.world());
    resolve_epochs(config_, train_data_->samples());
    const models::Model model = models::resolve(config_.model, train_data_->facts());
    check_model_fits_grid(config_, model, shape_);
    const auto forecast = choose_shards(model);
    const GridTraffic traffic = traffic_of(forecast);  // on the leading rank
    if (!config_.data.validation.empty()) {
      validation_data_ =
          task_.open(held_out_data(config_, train_data_->encoding()), runtime_.world());
      train_data_->check_fits(*validation_data_);
    }
    phases_.done("data");
    placement_ = place_grid(runtime_, config_.grid.order, shape_, traffic, network_.network);
    if (leads()) {
      fabric_ = make_fabric_record(network_, runtime_.hosts(), placement_.order, shape_, traffic);
    }
    grid_.emplace(runtime_, shape_, placement_.order);
    phases_.done("grid");
    plan_ = model.plan;
    tune_before_steps();
    parallel::StepOptions options = step_options(config_, shape_);
    const int replicas = shape_.extent(kDataAxes);
    options.micro_batches =
        parallel::largest_share(config_.batch.global / config_.batch.micro, replicas);
    options.stage.seed = {};  // initial values are drawn later, if there is no checkpoint
    step_.emplace(ctx_, *grid_, plan_, options);
    queue_.emplace(ctx_, *grid_, config_.batch.global * task_.units_of_sample(sample_));
    phases_.done("model");
    attention_ = attention_choice(runtime_.world(), ctx_, model, shape_,
                                  {.micro = config_.batch.micro,
                                   .compute = options.stage.compute,
                                   .masks_documents = config_.data.mask_documents});
    if (ctx_.device.kind != DeviceKind::kCpu) phases_.done("attention");
    config_.model = model.request;
    config_.grid.ask_for(shape_);
  }

  // Collective. Decides how many replicas share one copy, by the network and by memory. Returns
  // what check_memory_here returns.
  std::vector<plan::DryRunResult> choose_shards(const models::Model& model) {
    const auto check = [&](const GridShape& grid, const FindRemedy& remedy) {
      return check_memory_here(dry_run_input(config_, model, grid), runtime_, device_, remedy);
    };
    const std::vector<GridShape> grids =
        grids_of_shards(config_, shape_, network_.network, device_.carrier == "nccl");
    for (std::size_t i = 0; i + 1 < grids.size(); ++i) {
      try {
        auto forecast = check(grids[i], usual_remedies);
        shape_ = grids[i];
        return forecast;
      } catch (const ConfigError&) {  // it does not fit, on all ranks
      }
    }
    const RunOfRanks run{.config = config_,
                         .model = model,
                         .grid = shape_,
                         .ranks_of_node = runtime_.local_size(),
                         .device = dry_device(device_)};
    return check(shape_, [&](const FitsMemory& fits) { return nearest_setting(run, fits); });
  }

  // On the leading rank, which alone reports it.
  std::string text_of_collectives() const {
    const std::string text = leads() ? communication_->text(device_.carrier) : "";
    return text.empty() ? "by default" : "for " + text;
  }

  // Collective. Before the stages are built, since these ask whether sums have a fixed order.
  void tune_before_steps() {
    if (!config_.comm.tune || runtime_.size() == 1) return;
    if (device_.carrier != "mpi") {
      if (leads()) print_line("comm.tune: NCCL chooses its algorithms itself; nothing is tried");
      return;
    }
    tuner_.emplace(runtime_, *grid_, network_, config_.comm);
    tuner_->try_on_scratch(sizeof(float) * static_cast<std::size_t>(plan_.parameters));
    phases_.done("tuning");
  }

  // Collective, between steps.
  void tell_tuned() {
    for (const std::string& found : tuner_->news()) {
      journal_->say("comm.tune: " + found);
      journal_->note(step_number_, "tuned", 0.0, found);
    }
  }

  bool scales_dynamically() const { return !loss_scaling(config_).is_fixed(); }
  // Whether the search for a loss scale may cause overflow, because the scale can still go down.
  bool searches_scale(const StepMetrics& metrics) const {
    return scales_dynamically() &&
           *metrics.loss_scale > static_cast<double>(loss_scaling(config_).smallest);
  }

  std::string nccl_tables() const {
    return device_.nccl_tables ? join_nccl_tables(*device_.nccl_tables) : "";
  }
  void write_nccl_tables_used() const {
    const std::string file = folder_->file(kNcclTable), text = nccl_tables();
    std::error_code ignored;  // nobody misses a file that is not there
    if (text.empty()) std::filesystem::remove(file, ignored);
    if (!text.empty()) write_whole_file(file, text);
  }

  void write_config() const {
    folder_->check_still_ours();
    write_whole_file(folder_->file("config.ini"), config_to_ini(config_));
  }

  // This replica's micro-batches of a step, by their numbers in the step.
  std::vector<int> micro_batches() const {
    return batch_runs_of(config_, shape_)
        .micro_batches_of(config_.batch.global / config_.batch.micro, shape_.extent(kDataAxes),
                          grid_->index(kDataAxes));
  }

  // This replica's samples of each step to come.
  BatchPlan plan_of_samples() const {
    const auto global = static_cast<std::uint64_t>(config_.batch.global);
    const auto micro = static_cast<std::uint64_t>(config_.batch.micro);
    const auto steps = static_cast<std::uint64_t>(config_.run.steps - step_number_);
    const auto begin = static_cast<std::uint64_t>(samples_);
    return [=, mine = micro_batches()](
               std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
      if (step >= steps) return std::nullopt;
      std::vector<std::uint64_t> samples;
      for (const int number : mine) {
        const std::uint64_t first =
            begin + step * global + static_cast<std::uint64_t>(number) * micro;
        for (std::uint64_t i = 0; i < micro; ++i) samples.push_back(first + i);
      }
      return samples;
    };
  }

  ExitStatus loop() {
    const optim::LearningRateSchedule rate(
        {.curve = optim::learning_rate_curve(config_.schedule.name),
         .peak = config_.optim.lr,
         .total_steps = config_.run.steps,
         .warmup = config_.schedule.warmup,
         .decay = config_.schedule.decay});
    const auto reader =
        train_data_->read_steps(plan_of_samples(), config_.batch.micro, read_for(step_->stage()));
    while (step_number_ < config_.run.steps) {
      if (tracer_) tracer_->before(step_number_ + 1);
      for (const StepQueue::Known& step : train_step(*reader, rate.at(step_number_))) tell(step);
      if (tuner_) {
        tuner_->step_done();
        tell_tuned();
      }
      if (checks_copies_now()) check_copies_now();
      if (evaluates_now()) evaluate_now();
      if (stop_ && step_number_ < config_.run.steps) {
        save();
        trace_done(/*last=*/true);
        journal_->stopped(step_number_, late_ ? "before the job's time limit" : "by a signal");
        return ExitStatus::kRequeue;
      }
      if (saves_now()) save();
      trace_done(/*last=*/step_number_ == config_.run.steps);
    }
    journal_->finished(last_);
    return ExitStatus::kDone;
  }

  // Reports a step that is known. Called in the order of steps.
  void tell(const StepQueue::Known& step) {
    const StepMetrics& metrics = last_ = step.metrics;
    rank_watch_->add(step.seconds, step.wait_data_seconds, step.comm_seconds, metrics.step_seconds);
    cadence_->step_took(metrics.step_seconds);
    hang_limit_.step_took(metrics.step_seconds);
    runtime_.set_timeout(hang_limit_.seconds());
    if (deadline_) deadline_->step_took(metrics.step_seconds);
    journal_->step(metrics);
    for (const std::string& said : rank_watch_->look(metrics.step)) {
      journal_->straggler(metrics.step, said);
    }
    skipped_in_a_row_ = metrics.skipped && !searches_scale(metrics) ? skipped_in_a_row_ + 1 : 0;
    if (skipped_in_a_row_ == kMostSkippedSteps) {
      const std::string why = fmt::format(
          "the last {} steps had non-finite gradients (loss {}): lower "
          "optim.lr, or go on from an earlier checkpoint",
          kMostSkippedSteps, metrics.loss);
      journal_->failed_everywhere(metrics.step, why);
      // All ranks end here, and none before the report is written.
      runtime_.world().barrier().wait_host();
      throw DivergedError(why);
    }
  }

  void settle_all() {
    for (const StepQueue::Known& step : queue_->settle(0)) tell(step);
  }

  // The number of queued steps. They do not count yet for what is due.
  std::int64_t queued_steps() const { return static_cast<std::int64_t>(queue_->size()); }

  bool checks_copies_now() const { return config_.check.copies > 0 && due(config_.check.copies); }
  bool evaluates_now() const {
    return validation_data_ && config_.eval.every > 0 && due(config_.eval.every);
  }
  bool saves_now() const {
    return cadence_->due(queued_steps()) || step_number_ == config_.run.steps;
  }

  void trace_done(bool last = false) {
    if (!tracer_) return;
    const std::string said = tracer_->after(step_number_, last);
    if (!said.empty()) journal_->say(said);
  }

  // True after every `every`-th step and after the last one. 0: only after the last one.
  bool due(std::int64_t every) const { return due(every, step_number_); }
  bool due(std::int64_t every, std::int64_t step) const {
    return step == config_.run.steps || (every > 0 && step % every == 0);
  }

  // The estimate until a checkpoint is measured, for a disk that is not fast.
  double guessed_checkpoint_seconds() const {
    constexpr double kBytesPerSecond = 200e6;
    return 1.0 + static_cast<double>(checkpoint_bytes()) / kBytesPerSecond;
  }
  // Weights and two moments, in fp32.
  std::int64_t checkpoint_bytes() const {
    return 3 * static_cast<std::int64_t>(sizeof(float)) * plan_.parameters;
  }

  // Whether this rank wants the step that now begins to be the last. Only rank 0 looks at the time.
  bool wants_stop() {
    const bool evaluates = validation_data_ && config_.eval.every > 0;
    const Deadline::Ahead ahead = {
        .evaluations = evaluates ? due(config_.eval.every, step_number_ + 1) +
                                       due(config_.eval.every, step_number_ + 2)
                                 : 0,
        .checkpoint = cadence_->due(1 + queued_steps()) || step_number_ + 1 == config_.run.steps,
        .queued_steps = static_cast<int>(queued_steps())};
    late_ = late_ || (deadline_ && deadline_->wants_stop(unix_seconds(), ahead));
    return late_ || signals_.arrived();
  }

  // Queues a step. Returns the steps that became known.
  std::vector<StepQueue::Known> train_step(tasks::StepReader& reader, double learning_rate) {
    const FlightRecorder::Phase phase(runtime_.recorder(), "step", step_number_ + 1);
    queue_step(reader, learning_rate);
    const bool pauses = stop_ || checks_copies_now() || evaluates_now() || saves_now();
    return queue_->settle(pauses ? 0 : queue_->ahead());
  }

  void queue_step(tasks::StepReader& reader, double learning_rate) {
    const StepQueue::Mark begin = queue_->mark();
    const double waited_before = reader.wait_seconds();
    const std::vector<nn::MicroBatch> batches = [&] {
      const FlightRecorder::Phase phase(runtime_.recorder(), "read data");
      reader.read();
      return reader.micro_batches(ctx_);
    }();
    const std::uint64_t key = philox_key(static_cast<std::uint64_t>(config_.run.seed),
                                         fmt::format("dropout of step {}", step_number_));
    const parallel::QueuedStep step = step_->queue(
        batches, step_number_ + 1, static_cast<float>(learning_rate), key, wants_stop());
    if (!step.news().empty()) journal_->say(step.news());
    stop_ = stop_ || step.stop();
    ++step_number_;
    samples_ += config_.batch.global;
    StepMetrics metrics;
    metrics.step = step_number_;
    metrics.learning_rate = learning_rate;
    if (config_.run.precision == "fp16") metrics.loss_scale.emplace();
    metrics.units = samples_ * task_.units_of_sample(sample_);
    metrics.wait_data_seconds = reader.wait_seconds() - waited_before;
    queue_->push(begin, step, metrics);
  }

  // Called before anything else is done with the weights.
  void check_copies_now() {
    settle_all();
    const FlightRecorder::Phase phase(runtime_.recorder(), "check copies");
    parallel::check_copies(ctx_, step_->stage(), step_->optimizer(), step_number_);
  }

  void evaluate_now() {
    settle_all();
    const FlightRecorder::Phase phase(runtime_.recorder(), "evaluation");
    const Stopwatch watch;
    std::optional<std::int64_t> micro_batches;
    if (config_.eval.batches) {
      micro_batches = *config_.eval.batches * (config_.batch.global / config_.batch.micro);
    }
    const nn::EvaluationSums sums =
        evaluate(step_->executor(), *validation_data_, config_.batch.micro, micro_batches);
    const double seconds = watch.seconds();
    if (deadline_) deadline_->evaluation_took(seconds);
    Evaluation evaluation{.step = step_number_, .loss = sums.mean_loss(), .seconds = seconds};
    if (sums.correct) {
      evaluation.top1 = sums.share(sums.correct->top1);
      evaluation.top5 = sums.share(sums.correct->top5);
    }
    journal_->evaluation(evaluation, task_.measures(sums));
  }

  void save() {
    settle_all();
    const FlightRecorder::Phase phase(runtime_.recorder(), "checkpoint");
    const Stopwatch watch;
    runtime_.set_timeout(hang_limit_.seconds_with_checkpoint(checkpoint_bytes()));
    const std::string path = checkpoints_->save({step_number_, samples_});
    const double seconds = runtime_.world().all_reduce_host(watch.seconds(), ReduceOp::kMax);
    hang_limit_.checkpoint_took(checkpoint_bytes(), seconds);
    runtime_.set_timeout(hang_limit_.seconds());
    cadence_->checkpoint_took(seconds);
    if (deadline_) deadline_->checkpoint_took(seconds);
    const bool more = step_number_ < config_.run.steps;
    journal_->checkpoint(step_number_, path, seconds,
                         more ? cadence_->steps_between() : std::nullopt);
  }

  StartupPhases phases_;
  Runtime& runtime_;
  const StopSignals& signals_;
  Config config_;
  const tasks::Task& task_;
  const Shape sample_;  // of the task
  HangLimit hang_limit_;
  BitsOfStart bits_;
  ComputeDevice device_;
  ops::Context& ctx_ = device_.context;
  NetworkOfJob network_;
  GridShape shape_;
  Placement placement_;
  std::optional<FabricRecord> fabric_;  // on rank 0, where a network is known
  std::optional<ProcessGrid> grid_;
  std::optional<RunFolder> folder_;
  std::shared_ptr<const tasks::TaskData> train_data_, validation_data_;
  nn::ModelPlan plan_;
  std::optional<parallel::TrainerStep> step_;
  ops::AttentionChoice attention_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<AlgorithmTuner> tuner_;              // with comm.tune
  std::optional<CommunicationWatch> communication_;  // on the leading rank
  std::optional<RunJournal> journal_;
  std::optional<RankWatch> rank_watch_;
  std::optional<Tracer> tracer_;
  std::optional<CheckpointCadence> cadence_;
  std::optional<Deadline> deadline_;  // on rank 0
  std::optional<StepQueue> queue_;
  int skipped_in_a_row_ = 0;
  StepMetrics last_;              // metrics of the last known step
  std::int64_t step_number_ = 0;  // steps queued
  std::int64_t samples_ = 0;      // consumed by them
  bool stop_ = false;             // some rank wants to stop
  bool late_ = false;             // this rank does, because the job's end is near
};

}  // namespace

ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals,
                 std::optional<ComputeDevice> device) {
  runtime.set_timeout(HangLimit(config.comm.timeout).seconds());
  return Trainer(runtime, config, signals, std::move(device)).run();
}

}  // namespace trireme
