#include "train/prepared_run.h"

#include <utility>

#include "trireme/base/log.h"
#include "trireme/train/data_request.h"
#include "trireme/train/dry_run_input.h"
#include "trireme/train/memory_check.h"
#include "trireme/train/nearest_setting.h"
#include "trireme/train/run_grid.h"
#include "trireme/train/step_setup.h"
#include "trireme/train/step_traffic.h"

#include "train/fabric_recorder.h"
#include "train/shard_group.h"

namespace trireme {

PreparedRun::PreparedRun(Runtime& ranks, const Config& wanted, std::optional<ComputeDevice> chosen)
    : phases(ranks.startup()),
      runtime(ranks),
      config(wanted),
      task(tasks::task_of(config.model)),
      sample(models::sample_shape(config.model)),
      bits(settle_same_bits(runtime.world(), config)),
      device(chosen ? std::move(*chosen) : choose_compute_device(runtime, device_request(config))),
      network(plan_network()),
      shape(resolve_run_grid(config, runtime.size())),
      train_data(open_training_data()),
      model(models::resolve(config.model, train_data->facts())),
      traffic(choose_shards()),
      validation_data(open_validation_data()),
      placement(place()),
      fabric(leads() ? make_fabric_record(network, runtime.hosts(), placement.order, shape, traffic)
                     : std::nullopt),
      grid(runtime, shape, placement.order),
      tuner(tune_before_steps()),
      step(device.context, grid, model.plan, options_of_step()),
      attention(choose_attention()),
      // This comes last, so that a faulty configuration or missing data leave no folder behind.
      folder(runtime.world(), config.run.folder) {
  phases.done("folder");
  config.model = model.request;
  config.grid.ask_for(shape);
}

std::int64_t PreparedRun::checkpoint_bytes() const {
  const std::size_t of_each = 1 + optim::state_names(step.options().optimizer).size();
  return static_cast<std::int64_t>(of_each * sizeof(float)) * model.plan.parameters;
}

// Collective. Before the grid makes its communicators.
NetworkOfJob PreparedRun::plan_network() {
  NetworkOfJob read = read_job_network(runtime, config.comm.network);
  if (leads()) {
    for (const std::string& remark : read.remarks) report_line("comm.network: " + remark);
  }
  plan_communicators(runtime, read, config.comm);
  return read;
}

// Collective. The keys of the model determine what a sample is, and the data determine how many
// tokens or classes there are.
std::shared_ptr<const tasks::TaskData> PreparedRun::open_training_data() {
  auto opened = task.open(training_data(config), runtime.world());
  resolve_epochs(config, opened->samples());
  return opened;
}

// Collective. Decides how many replicas share one copy, by the network and by memory. Returns what
// a step then sends.
GridTraffic PreparedRun::choose_shards() {
  check_model_fits_grid(config, model, shape);
  const auto check = [&](const GridShape& on, const FindRemedy& remedy) {
    return check_memory_here(dry_run_input(config, model, on), runtime, device, remedy);
  };
  const std::vector<GridShape> grids =
      grids_of_shards(config, shape, network.network, device.carrier == "nccl");
  for (std::size_t i = 0; i + 1 < grids.size(); ++i) {
    try {
      const auto forecast = check(grids[i], usual_remedies);
      shape = grids[i];
      return traffic_of(forecast);
    } catch (const ConfigError&) {  // it does not fit, on all ranks
    }
  }
  const RunOfRanks run{.config = config,
                       .model = model,
                       .grid = shape,
                       .ranks_of_node = runtime.local_size(),
                       .device = dry_device(device)};
  return traffic_of(
      check(shape, [&](const FitsMemory& fits) { return nearest_setting(run, fits); }));
}

// Collective.
std::shared_ptr<const tasks::TaskData> PreparedRun::open_validation_data() {
  std::shared_ptr<const tasks::TaskData> opened;
  if (!config.data.validation.empty()) {
    tasks::DataRequest request = held_out_data(config, train_data->encoding());
    request.tokenizer = train_data->tokenizer();
    opened = task.open(request, runtime.world());
    train_data->check_fits(*opened);
  }
  phases.done("data");
  return opened;
}

// Collective.
Placement PreparedRun::place() {
  return place_grid(runtime, config.grid.order, shape, traffic, network.network);
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
