#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/base/usual_threads.h"
#include "trireme/setup/run_layouts.h"
#include "trireme/study/scaling_study.h"
#include "trireme/tasks/task.h"
#include "trireme/train/signals.h"

#include "cli/cluster_limits.h"
#include "cli/commands.h"
#include "cli/planning.h"
#include "cli/scale_launch.h"
#include "cli/site_file.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct ScaleArguments {
  std::string nodes = "1,2", mode = "strong", output, site, time = "00:30:00", point, plan,
              plan_network;
  std::optional<std::string> grids, launcher;
  std::optional<int> warmup, cpus_per_rank;
  int ranks_per_node = 1, repeats = 3, steps = 20;
  double efficiency = 0.8;
  bool dry_run = false;
  Config config;
};

void declare(Options& options, ScaleArguments& given) {
  options.add("output", given.output, "folder", "of the study; the same command goes on in it");
  options.add("nodes", given.nodes, "nodes", "numbers of them to try", not_empty());
  options.add("ranks-per-node", given.ranks_per_node, "ranks", "on each node", between(1, 65536));
  options.add("mode", given.mode, "",
              "strong: the same batch.global on all numbers of nodes; weak: batch.global on the "
              "fewest, and more in proportion; or strong,weak",
              not_empty());
  options.add("grids", given.grids, "",
              "PIPELINExTENSOR, as in 1x1,1x2: a curve for each, data parallelism is what they "
              "leave; auto: that of grid.pipeline and grid.tensor",
              not_empty());
  options.add("repeats", given.repeats, "runs", "of each point, for the confidence",
              between(1, 1000));
  options.add("steps", given.steps, "steps", "of each run", between(2, limits::kCount));
  options.add("warmup", given.warmup, "steps", "the first of them, not measured; auto: a quarter",
              between(1, limits::kCount));
  options.add(
      "launcher", given.launcher, "",
      "mpiexec: on this host, a node is ranks-per-node processes of it; srun: inside of this "
      "allocation; sbatch: a job for each run; auto: srun in an allocation, mpiexec where there "
      "is no sbatch; give it on a login node",
      one_of({"mpiexec", "srun", "sbatch"}));
  options.add("site", given.site, "file",
              "what is particular to the cluster; without it as of trireme job");
  options.add("time", given.time, "", "limit of each job, as sbatch takes it", not_empty());
  options.add("cpus-per-rank", given.cpus_per_rank, "cores",
              "of each rank, for srun and sbatch; auto: run.threads", between(1, 65536));
  options.add("efficiency", given.efficiency, "",
              "the least parallel efficiency that the verdict calls efficient", between(0.01, 1.0));
  options.add("plan", given.plan, "name",
              "show beside each measured rate what trireme plan says of it, for such GPUs (as its "
              "--gpu) or what such a file describes; empty: not");
  options.add("plan-network", given.plan_network, "name", "as trireme plan --network");
  options.add("dry-run", given.dry_run, "", "show the points and start nothing");
  options.add("point", given.point, "folder", "run one point of a study: what the launchers start");
  options.paths({"output", "site", "point"});
  add_config_keys(options, given.config);
}

scaling::StudyPlan plan_of(const ScaleArguments& given, const ScaleLaunch& launch) {
  scaling::StudyPlan plan;
  plan.config = given.config;
  plan.nodes = scaling::read_counts(given.nodes);
  plan.ranks_per_node = given.ranks_per_node;
  plan.modes = scaling::read_modes(given.mode);
  plan.repeats = given.repeats;
  plan.steps = given.steps;
  plan.warmup = given.warmup.value_or(std::max(1, given.steps / 4));
  const Config::Grid& grid = given.config.grid;
  if (grid[kDataAxes]) {
    throw ConfigError(fmt::format(
        "grid.data is {}, but in a study it follows from the number of nodes: leave it out",
        *grid[kDataAxes]));
  }
  if (grid.islands > 1) {
    throw ConfigError(
        fmt::format("grid.islands is {}, but a study measures grids whose replicas meet at every "
                    "step: leave it "
                    "out",
                    grid.islands));
  }
  if (given.config.sync.every) {
    throw ConfigError(
        fmt::format("sync.every is {}, but a study measures steps without meetings: leave it out",
                    *given.config.sync.every));
  }
  plan.grids = given.grids ? scaling::read_grids(*given.grids) : std::vector{grid.shape()};
  if (plan.warmup >= plan.steps) {
    throw ConfigError(
        fmt::format("--warmup {} leaves none of --steps {} to measure", plan.warmup, plan.steps));
  }
  // The simulated nodes get the same number of cores in every point. Otherwise a point with fewer
  // nodes would have larger ones.
  if (launch.launcher == "mpiexec" && !plan.config.run.threads) {
    plan.config.run.threads =
        std::max(1, usual_threads() / (plan.nodes.back() * plan.ranks_per_node));
  }
  plan.efficiency = given.efficiency;
  plan.launcher = launch.launcher;
  return plan;
}

// Makes the checks of `trireme train` and of memory before anything is started.
void check_points(const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points,
                  const ScaleLaunch& launch) {
  for (const scaling::Point& point : points) {
    if (point.repeat > 1) continue;
    JobRequest request;
    request.nodes = point.nodes;
    request.tasks_per_node = plan.ranks_per_node;
    plan_job({"scale", "@NODES@"}, scaling::config_of(plan, point, "run"), request, launch.limits(),
             facts_to_check);
  }
}

// What the planner says of each point. Without a launcher of nodes all ranks are on this host.
scaling::Predictions predict(const ScaleArguments& given, const scaling::StudyPlan& plan,
                             const std::vector<scaling::Point>& points, const ScaleLaunch& launch) {
  scaling::Predictions all;
  for (const scaling::Point& point : points) {
    if (point.repeat > 1) continue;
    const bool here = launch.launcher == "mpiexec";
    const Planner planner(
        plan_request(given.plan, given.plan_network, here ? point.ranks : plan.ranks_per_node),
        scaling::config_of(plan, point, "run"), {});
    const plan::Layout layout = layout_of(planner.config(), point.ranks);
    const plan::StepForecast step = planner.forecast(layout).step;
    const double units = planner.scale(point.nodes).units_of_step;
    all.machine = fmt::format("{}; {}", planner.device().title, planner.network().name);
    all.points.emplace_back(point.name(), scaling::Predicted{units / step.seconds,
                                                             units / step.high, units / step.low});
  }
  return all;
}

void show_points(const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points,
                 const ScaleLaunch& launch, const std::string& output) {
  const bool command_known = launch.launcher == "mpiexec" || launch.launcher == "srun";
  for (const scaling::Point& point : points) {
    const bool done = !scaling::results_of(output, plan, point).empty();
    const std::string folder = fmt::format("{}/points/{}", output, point.name());
    print_line(fmt::format(
        "{}{}: {}", point.name(), done ? " (done)" : "",
        command_known
            ? fmt::format(
                  "{}", fmt::join(launch_command(launch, point, plan.ranks_per_node, folder), " "))
            : fmt::format("{}{}, {}", launch.launcher == "sbatch" ? "a job of " : "",
                          counted(point.nodes, "node"), counted(point.ranks, "rank"))));
  }
  print_line(fmt::format("{} points of {} steps", points.size(), plan.steps));
}

ExitStatus run_study(const ScaleArguments& given) {
  ScaleLaunch launch;
  launch.launcher = given.launcher.value_or(default_launcher());
  launch.program = fs::read_symlink("/proc/self/exe").string();
  launch.site = read_site(given.site);
  if (launch.launcher == "sbatch") {
    launch.site.memory = cluster_limits(launch.site).node_memory;
  }
  launch.time = given.time;
  launch.cpus_given = given.cpus_per_rank || given.config.run.threads;
  launch.cpus_per_rank = given.cpus_per_rank.value_or(given.config.run.threads.value_or(1));
  check_config(given.config);
  scaling::StudyPlan plan = plan_of(given, launch);
  const std::vector<scaling::Point> points = scaling::points_of(plan);
  scaling::settle_micro(plan, points, given.output,
                        {.on_gpus = plan.config.run.device == "cuda",
                         .gpu_bytes = launch.site.gpu_memory.value_or(0) << 20,
                         .node_mib = launch.site.memory,
                         .ranks_of_node = plan.ranks_per_node});
  check_points(plan, points, launch);
  if (given.output.empty()) {
    throw ConfigError("scale needs a folder to keep the study in: --output FOLDER");
  }
  const std::string output = fs::absolute(given.output).lexically_normal().string();
  if (given.dry_run) {
    show_points(plan, points, launch, output);
    if (given.plan.empty()) return ExitStatus::kDone;
    for (const auto& [name, said] : predict(given, plan, points, launch).points) {
      print_line(fmt::format("{}: {} to {} {} are predicted", name, short_number(said.low),
                             short_number(said.high),
                             tasks::task_of(plan.config.model).unit().rate()));
    }
    return ExitStatus::kDone;
  }
  // A study that is done can be shown where it could not be run.
  if (std::any_of(points.begin(), points.end(), [&](const scaling::Point& point) {
        return scaling::results_of(output, plan, point).empty();
      })) {
    check_launcher(launch, plan.nodes.back());
  }
  const scaling::StudyFolder study(output, plan);
  if (!given.plan.empty()) study.keep(predict(given, plan, points, launch));
  const bool whole = launch.launcher == "sbatch" ? run_as_jobs(launch, study, plan, points)
                                                 : run_here(launch, study, plan, points);
  print_line(study.report(points));
  if (whole) {
    print_line(fmt::format("report: {}/report.html", output));
    return ExitStatus::kDone;
  }
  print_line(fmt::format("stopped by a signal; the same command goes on{}",
                         launch.launcher == "sbatch" ? ", the jobs that are queued too" : ""));
  return ExitStatus::kRequeue;
}

}  // namespace

Work parse_scale(const Arguments& arguments) {
  ScaleArguments given;
  Options options("trireme scale --output FOLDER [--config FILE] [--nodes N,N...] [--KEY VALUE]...",
                  true);
  options.ignore_section("job");  // for `trireme job`
  declare(options, given);
  options.parse(arguments, read_run_config);
  if (options.help_requested()) return show_help(options.description());
  if (given.point.empty()) {
    require_single_process("scale");
    return {.alone = [given = std::move(given)] { return run_study(given); }, .on_ranks = {}};
  }
  const auto signals = std::make_shared<const StopSignals>();
  return {.alone = {}, .on_ranks = [folder = given.point, signals](Runtime& runtime) {
            return scaling::run_point(runtime, folder, "trireme " TRIREME_VERSION, *signals);
          }};
}

}  // namespace trireme::cli
