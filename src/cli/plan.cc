#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/base/wall_clock.h"
#include "trireme/job/job_script.h"
#include "trireme/plan/campaign.h"
#include "trireme/report/chrome_trace.h"

#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/plan_calibrate.h"
#include "cli/plan_tables.h"
#include "cli/planning.h"

namespace trireme::cli {
namespace {

struct PlanArguments {
  std::string nodes = "1", output, json, trace, time;
  std::optional<double> tokens;
  double queue = 0.0, write_rate = 1.0;  // hours; GB/s
  std::optional<double> node_mtbf;       // hours
  int best = 5;
  bool explain = false, calibrate = false;
  std::vector<std::string> runs;
  PlanRequest request;
  Config config;
  GivenKeys keys;
};

int read_nodes(const std::string& whole, std::string_view text) {
  int nodes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nodes);
  if (error != std::errc() || end != text.data() + text.size() || nodes < 1 ||
      nodes > kMostGridRanks) {
    throw ConfigError(fmt::format(
        "--nodes {}: '{}' is no number of nodes from 1 to {}; as in --nodes 8, 2,4,8 or 1-64",
        whole, text, kMostGridRanks));
  }
  return nodes;
}

// "8", "2,4,8", or "1-64": 1, 2, 4, ... 64.
std::vector<int> nodes_of(const std::string& text) {
  std::set<int> nodes;
  for (const std::string& word : split_list(text)) {
    const std::size_t dash = word.find('-');
    if (dash == std::string::npos) {
      nodes.insert(read_nodes(text, word));
      continue;
    }
    const int first = read_nodes(text, std::string_view(word).substr(0, dash));
    const int last = read_nodes(text, std::string_view(word).substr(dash + 1));
    if (first > last) {
      throw ConfigError(fmt::format("--nodes {}: {} is more than {}", text, first, last));
    }
    for (std::int64_t n = first; n < last; n *= 2) nodes.insert(static_cast<int>(n));
    nodes.insert(last);
  }
  return {nodes.begin(), nodes.end()};
}

// Searches on each number of nodes, and prints what it finds.
std::vector<PlannedNodes> plan_nodes(const Planner& planner, const std::vector<int>& nodes,
                                     int best) {
  // Composed costs only rank, so more are dry-run whole than are shown.
  constexpr int kDryRun = 10;
  plan::LayoutSearch search = planner.search(std::max(best, kDryRun));
  std::vector<PlannedNodes> all;
  for (const int count : nodes) {
    PlannedNodes planned{planner.scale(count), search.find(planner.ranks_of_island(count))};
    if (std::ssize(planned.found.best) > best) {
      planned.found.best.resize(static_cast<std::size_t>(best));
    }
    if (all.empty()) print_plan_head(planned.scale);
    if (planned.found.best.empty()) {
      print_line(fmt::format("{:>5} nothing fits: {} layouts tried", count, planned.found.tried));
    }
    print_plan(planned);
    all.push_back(std::move(planned));
  }
  return all;
}

void write_json(NamedOutput& output, const Planner& planner, const std::vector<PlannedNodes>& all) {
  Json points = Json::array();
  for (const PlannedNodes& planned : all) points.push_back(json_of_plan(planned));
  output.write_whole(Json::object({{"format_version", 1},
                                   {"device", planner.device().name},
                                   {"network", planner.network().name},
                                   {"ranks_of_node", planner.ranks_of_node()},
                                   {"memory", planner.memory()},
                                   {"points", std::move(points)}})
                         .dump(1) +
                     "\n");
}

// What a run's trace would show (log.trace), of the first tensor rank of each stage.
void write_trace(ChromeTraceFile& file, const Planner& planner, const plan::Layout& layout) {
  std::vector<Trace> traces;
  const plan::PlannedLayout planned = planner.forecast(layout, &traces);
  for (std::size_t stage = 0; stage < traces.size(); ++stage) {
    const int place = planned.step.stages[stage].place;
    std::vector<std::string> where;
    for (const auto& [name, axes] : kGridDimensions) {
      where.push_back(fmt::format("{} {}", name, layout.grid.index(place, axes)));
    }
    file.add(chrome_events(traces[stage], {.rank = place,
                                           .title = fmt::format("rank {}: {} (planned)", place,
                                                                fmt::join(where, ", "))}));
  }
  file.finish();
}

void explain(const Planner& planner, const PlannedNodes& planned) {
  const plan::PlannedLayout whole = planner.forecast(planned.found.best.front().layout);
  print_explanation(whole, planned.scale);
  for (const std::string& line : planner.sensitivities(whole, planned.scale.nodes)) {
    print_line(line);
  }
}

// Will the run reach what it is to do, and when.
plan::CampaignInput campaign_of(const PlanArguments& given, const Planner& planner,
                                const PlannedNodes& planned) {
  constexpr double kHour = 3600.0;
  const plan::StepForecast& step = planned.found.best.front().step;
  const Config& config = planner.config();
  plan::CampaignInput input;
  input.step_seconds = {step.low, step.seconds, step.high};
  input.units_of_step = planned.scale.units_of_step;
  input.unit = planned.scale.units;
  input.goal = {.steps = given.tokens ? 0 : std::int64_t{config.run.steps},
                .units = given.tokens.value_or(0.0)};
  input.nodes = planned.scale.nodes;
  if (!given.time.empty()) {
    const auto limit = read_time_limit(given.time, "--time");
    if (limit) input.job_limit = static_cast<double>(*limit);
  }
  input.margin = config.checkpoint.margin;
  input.queue = given.queue * kHour;
  input.checkpoint_bytes = planner.checkpoint_bytes();
  input.write_rate = given.write_rate * 1e9;
  input.checkpoint_every = {};
  if (config.checkpoint.every)
    input.checkpoint_every.steps = std::int64_t{*config.checkpoint.every};
  input.kept_checkpoints = config.checkpoint.keep;
  if (config.checkpoint.mtbf) {
    input.mtbf = *config.checkpoint.mtbf * kHour;
  } else if (given.node_mtbf) {
    input.node_mtbf = *given.node_mtbf * kHour;
  }
  input.begin = unix_seconds();
  return input;
}

// Whether the user asked for it. Without data nobody knows how long an epoch is.
bool asks_for_campaign(const PlanArguments& given) {
  return given.tokens.has_value() || !given.time.empty() ||
         (given.keys.contains("run.steps") && !given.config.run.steps.epochs());
}

ExitStatus show_plan(const PlanArguments& given) {
  if (given.calibrate) return calibrate_plan(given.runs, given.request, given.output);
  NamedOutput json(given.json), output(given.output);
  std::optional<ChromeTraceFile> trace;
  if (!given.trace.empty()) trace.emplace(given.trace);
  const std::vector<int> nodes = nodes_of(given.nodes);
  const Planner planner(given.request, given.config, given.keys);
  print_line(planner.model());
  print_line(planner.description());
  const std::vector<PlannedNodes> all = plan_nodes(planner, nodes, given.best);
  if (json.is_there()) write_json(json, planner, all);
  const auto chosen = std::ranges::find_if(
      all.rbegin(), all.rend(), [](const PlannedNodes& one) { return !one.found.best.empty(); });
  if (chosen == all.rend()) planner.refuse_all(nodes.back(), all.back().found);
  const std::vector<plan::PlannedLayout>& best = chosen->found.best;
  if (best.size() > 1) print_line(plan::why_faster(best[0], best[1]));
  if (asks_for_campaign(given)) {
    const plan::CampaignInput input = campaign_of(given, planner, *chosen);
    for (const std::string& line : plan::campaign_lines(input, plan::plan_campaign(input))) {
      print_line(line);
    }
  }
  if (given.explain) explain(planner, *chosen);
  if (trace) write_trace(*trace, planner, best[0].layout);
  if (output.is_there()) {
    output.write_whole(config_to_ini(planner.planned_config(best[0])));
  }
  return ExitStatus::kDone;
}

}  // namespace

Work parse_plan(const Arguments& arguments) {
  PlanArguments given;
  Options options(
      "trireme plan [--config FILE] --nodes N (--gpu NAME | --description FILE) "
      "[--SECTION.KEY VALUE]...",
      true);
  options.add("nodes", given.nodes, "nodes", "8, 2,4,8, or 1-64: 1, 2, 4, ... 64", not_empty());
  add_plan_options(options, given.request);
  options.add("best", given.best, "layouts", "how many are shown for each number of nodes",
              between(1, 100));
  options.add("tokens", given.tokens, "tokens",
              "to train on: how many jobs, until when, how many node-hours; auto: run.steps, if it "
              "is given",
              above(0));
  options.add("time", given.time, "", "limit of each job, as sbatch takes it; empty: none");
  options.add("queue", given.queue, "hours", "between the end of a job and the start of the next",
              between(0, 1e6));
  options.add("write-rate", given.write_rate, "GB/s", "of checkpoints", above(0));
  options.add("node-mtbf", given.node_mtbf, "hours",
              "between failures of a node; auto: none, or checkpoint.mtbf, which is the job's",
              above(0));
  options.add("explain", given.explain, "",
              "where each ms and MiB of the best one goes, and what would change it");
  options.add("output", given.output, "file",
              "write the best one on the most nodes as a configuration");
  options.add("calibrate", given.calibrate, "",
              "instead fit the constants of the device and network to measured runs; --output then "
              "writes what --description reads");
  options.add_positional("RUN", given.runs, "a run's folder, with --calibrate");
  options.add("trace", given.trace, "file", "write its step as log.trace would; empty: none");
  options.add("json", given.json, "file", "the same for programs; empty: none");
  options.paths({"json", "output", "trace"});
  add_config_keys(options, given.config);
  options.ignore_section("job");  // for `trireme job`
  options.parse(arguments, read_run_config);
  if (options.help_requested()) return show_help(options.description());
  given.keys = chosen_keys(options);
  if (given.calibrate == given.runs.empty()) {
    throw ConfigError(given.calibrate ? "plan --calibrate takes the folders of runs"
                                      : "plan takes no folders, but with --calibrate");
  }
  require_single_process("plan");
  if (!given.time.empty()) read_time_limit(given.time, "--time");  // before a long search
  begin_outputs({given.json, given.output, given.trace});
  keep_inputs({given.request.description, options.config_file()},
              {given.json, given.output, given.trace});
  return {.alone = [given = std::move(given)] { return show_plan(given); }, .on_ranks = {}};
}

}  // namespace trireme::cli
