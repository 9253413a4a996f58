#include "train/prepared_run.h"

#include <utility>

#include "trireme/base/log.h"
#include "trireme/plan/local_pass.h"
#include "trireme/setup/data_request.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/named_files.h"
#include "trireme/setup/nearest_setting.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/settled_micro.h"
#include "trireme/setup/step_setup.h"
#include "trireme/setup/step_traffic.h"

#include "train/cut_stages.h"
#include "train/fabric_recorder.h"
#include "train/micro_before.h"
#include "train/planned_samples.h"
#include "train/run_member.h"
#include "train/shard_group.h"
#include "train/shares_before.h"
#include "train/starting_point.h"

namespace trireme {

namespace {

// Collective. Before the grid makes its communicators.
NetworkOfJob plan_network(Runtime& runtime, const Config& config) {
  NetworkOfJob read = read_job_network(runtime, config.comm.network);
  if (runtime.rank() == 0) {
    for (const std::string& remark : read.remarks) report_line("comm.network: " + remark);
  }
  plan_communicators(runtime, read, config.comm);
  return read;
}

// Collective.
std::vector<optim::LearningRatePoint> read_points_of_rate(Communicator& world,
                                                          const Config::Schedule& schedule) {
  return learning_rates_in(world.read_once([&] { return learning_rates_file(schedule); }),
                           schedule);
}

// Collective. The checkpoint that this start goes on from, where what it has settled may count.
std::optional<Checkpoint> settled_before(Communicator& world, const Config& config) {
  const bool settles = !micro_of_keys(config) || may_have_settled_rate(config) ||
                       config.batch.balance.is_auto() || config.grid.cut.is_auto() ||
                       !config.cuda.products.empty();
  if (!settles) return {};
  try {
    return StartingPoint::foresee(world, folder_of_job(config), config.run.resume).checkpoint;
  } catch (const CheckpointError&) {  // whoever opens it tells what is wrong
    return {};
  }
}

struct ShardChoice {
  GridShape shape;
  GridTraffic traffic;  // of a step; on the leading rank
};

// Collective. Decides how many replicas of `grid` share one copy, by the network and by memory.
ShardChoice choose_shards(Runtime& runtime, const Config& config, const models::Model& model,
                          const ComputeDevice& device, const NetworkOfJob& network,
                          const GridShape& grid) {
  check_model_fits_grid(config, model, grid);
  const auto check = [&](const GridShape& on, const FindRemedy& remedy) {
    return check_memory_here(dry_run_input(config, model, on), runtime, device, remedy);
  };
  const std::vector<GridShape> grids =
      grids_of_shards(config, grid, network.network, device.carrier != "mpi");
  for (std::size_t i = 0; i + 1 < grids.size(); ++i) {
    try {
      return {grids[i], traffic_of(check(grids[i], usual_remedies))};
    } catch (const ConfigError&) {  // it does not fit, on all ranks
    }
  }
  const RunOfRanks run{.config = config,
                       .model = model,
                       .grid = grid,
                       .ranks_of_node = runtime.local_size(),
                       .device = dry_device(device)};
  return {grid, traffic_of(check(
                    grid, [&](const FitsMemory& fits) { return nearest_setting(run, fits); }))};
}

// Where NCCL carries tensors, this rank's GPU loads what a step launches before any rank connects.
void load_kernels(Runtime& runtime, const Config& config, const models::Model& model,
                  const ComputeDevice& device, const GridShape& grid, StartupPhases& phases) {
  plan::DryRunInput input = dry_run_input(config, model, grid);
  input.device = dry_device(device);
  if (runtime.size() == 1 || !input.device.nccl) return;
  plan::local_pass(device.context, input);
  phases.done("kernels");
}

// Collective.
std::shared_ptr<const tasks::TaskData> open_validation_data(Runtime& runtime, const Config& config,
                                                            const tasks::Task& task,
                                                            const tasks::TaskData& train_data) {
  if (config.data.validation.empty()) return nullptr;
  tasks::DataRequest request = held_out_data(config, train_data.encoding());
  request.tokenizer = train_data.tokenizer();
  auto opened = task.open(request, runtime.world());
  train_data.check_fits(*opened);
  return opened;
}

}  // namespace

RunPlan plan_run(Runtime& runtime, const Config& wanted, std::optional<ComputeDevice> chosen) {
  StartupPhases phases(runtime.startup());
  Config config = wanted;
  const tasks::Task& task = tasks::task_of(config.model);
  Shape sample = models::sample_shape(config.model);
  write_out_micro(config);
  BitsOfStart bits = settle_same_bits(runtime.world(), config);
  const std::optional<Checkpoint> checkpoint = settled_before(runtime.world(), config);
  std::vector<optim::LearningRatePoint> rates =
      read_points_of_rate(runtime.world(), config.schedule);
  ComputeDevice device =
      chosen ? std::move(*chosen) : choose_compute_device(runtime, device_request(config));
  ChosenProducts products = choose_products(runtime, device.context, checkpoint, config);
  NetworkOfJob network = plan_network(runtime, config);
  const GridShape grid = resolve_run_grid(config, ranks_of_island(config, runtime.size()));
  // The keys of the model determine what a sample is, and the data determine how many tokens or
  // classes there are.
  std::shared_ptr<const tasks::TaskData> train_data =
      task.open(training_data(config), runtime.world());
  resolve_epochs(config, train_data->samples());
  SettledRate settled_rate = settle_rate(checkpoint, config);
  models::Model model = models::resolve(config.model, train_data->facts());
  std::string why_micro =
      settle_micro_here(runtime, device, model, grid, micro_before(checkpoint, config), config);
  std::string why_shares = take_over_shares(checkpoint, device, grid, config);
  std::string why_cut = take_over_cut(checkpoint, model, grid, config);
  const ShardChoice shards = choose_shards(runtime, config, model, device, network, grid);
  auto validation_data = open_validation_data(runtime, config, task, *train_data);
  phases.done("data");
  Placement placement =
      place_grid(runtime, config.grid.order, shards.shape, shards.traffic, network.network);
  if (why_cut.empty() && config.grid.cut.is_auto()) {
    why_cut = settle_cut(runtime, device.context, placement.order, shards.shape, model, config);
    check_memory_here(dry_run_input(config, model, shards.shape), runtime, device, usual_remedies);
  }
  std::optional<FabricRecord> fabric;
  if (runtime.rank() == 0 && config.grid.islands == 1) {
    fabric =
        make_fabric_record(network, runtime.hosts(), placement.order, shards.shape, shards.traffic);
  }
  config.model = model.request;
  config.grid.ask_for(shards.shape);
  check_members(runtime.world(), config);
  load_kernels(runtime, config, model, device, shards.shape, phases);
  return {.runtime = runtime,
          .phases = std::move(phases),
          .task = task,
          .sample = sample,
          .bits = std::move(bits),
          .why_shares = std::move(why_shares),
          .why_cut = std::move(why_cut),
          .why_micro = std::move(why_micro),
          .settled_rate = std::move(settled_rate),
          .rates = std::move(rates),
          .device = std::move(device),
          .products = std::move(products),
          .network = std::move(network),
          .train_data = std::move(train_data),
          .model = std::move(model),
          .shape = shards.shape,
          .validation_data = std::move(validation_data),
          .placement = std::move(placement),
          .fabric = std::move(fabric),
          .config = std::move(config)};
}

PreparedRun::PreparedRun(RunPlan plan)
    : RunPlan(std::move(plan)),
      islands(runtime, shape, config.grid.islands, placement.order),
      grid(runtime, shape, islands.ranks()),
      tuner(tune_before_steps()),
      step(device.context, grid, model.plan, options_of_step()),
      attention(choose_attention()),
      // This comes last, so that a faulty configuration or missing data leave no folder behind.
      folder(runtime.world(), folder_of_job(config)) {
  phases.done("folder");
}

std::int64_t PreparedRun::checkpoint_bytes() const {
  const auto states = static_cast<std::int64_t>(step.options().optimizer.most_states());
  const nn::TrainedParameters& trained = step.stage().options().trained;
  const std::int64_t updated = trained.all() ? model.plan.parameters : trained.total();
  const std::int64_t outer = steps_between_meetings(config) ? 2 * updated : 0;
  const std::int64_t kept = step.compresses() ? updated : 0;
  return static_cast<std::int64_t>(sizeof(float)) *
         (islands.count() * (model.plan.parameters + states * updated + kept) + outer);
}

BatchPlan PreparedRun::samples_of_steps(std::int64_t first_sample, std::int64_t steps) const {
  const std::int64_t begin =
      first_sample + std::int64_t{islands.index()} * std::int64_t{config.batch.global};
  return samples_where([=](std::int64_t i) { return begin + i; }, steps);
}

BatchPlan PreparedRun::samples_of_steps(const SampleRanges& samples, std::int64_t steps) const {
  return samples_where([samples](std::int64_t i) { return sample_at(samples, i); }, steps);
}

// `place` of the i-th sample of the first step, counted on over the following ones.
BatchPlan PreparedRun::samples_where(std::function<std::int64_t(std::int64_t)> place,
                                     std::int64_t steps) const {
  return planned_samples(step.options().work, grid.index(kDataAxes),
                         {.place = std::move(place),
                          .of_step = samples_of_step(),
                          .micro = int{config.batch.micro},
                          .steps = steps});
}

void PreparedRun::share(const std::vector<int>& shares) {
  config.batch.balance = BatchBalance::automatic(shares);
  step.share(work_of_step(config, shape, step.options().work.rule()));
}

// Collective. Before the stages are built, since these ask whether sums have a fixed order.
std::optional<AlgorithmTuner> PreparedRun::tune_before_steps() {
  phases.done("grid");
  if (!config.comm.tune || runtime.size() == 1) return std::nullopt;
  if (device.carrier != "mpi") {
    if (leads()) print_line("comm.tune: NCCL chooses its algorithms itself; nothing is tried");
    return std::nullopt;
  }
  std::optional<AlgorithmTuner> made(std::in_place, runtime, grid, network, config.comm);
  made->try_on_scratch(sizeof(float) * static_cast<std::size_t>(model.plan.parameters));
  phases.done("tuning");
  return made;
}

parallel::StepOptions PreparedRun::options_of_step() const {
  parallel::StepOptions options = step_options(config, model.plan, shape);
  options.stage.seed = {};  // initial values are drawn later, if there is no checkpoint
  return options;
}

// Collective.
ops::AttentionChoice PreparedRun::choose_attention() {
  phases.done("model");
  ops::AttentionChoice choice = attention_choice(runtime.world(), device.context, model, shape,
                                                 {.micro = config.batch.micro,
                                                  .compute = step.stage().options().compute,
                                                  .masks_documents = config.data.mask_documents});
  if (device.context.device.kind != DeviceKind::kCpu) phases.done("attention");
  return choice;
}

}  // namespace trireme
