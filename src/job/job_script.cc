#include "trireme/job/job_script.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "job/job_environment.h"
#include "job/job_starts.h"

namespace trireme {
namespace {

// Returns the name between two @, the first of which is text[at]; or nothing.
std::string_view placeholder_at(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && ((text[end] >= 'A' && text[end] <= 'Z') || text[end] == '_')) ++end;
  const bool closed = end > at + 1 && end < text.size() && text[end] == '@';
  return closed ? text.substr(at + 1, end - at - 1) : std::string_view();
}

const std::string& value_of(std::string_view name, const std::string& where,
                            const Placeholders& values) {
  const auto found = values.find(name);
  if (found == values.end()) {
    std::vector<std::string> known;
    for (const auto& [key, value] : values) known.push_back(key);
    const auto nearest = nearest_name(name, known);
    throw ConfigError(fmt::format("{}: unknown placeholder @{}@; {}", where, name,
                                  nearest ? fmt::format("did you mean @{}@?", *nearest)
                                          : fmt::format("there are {}", fmt::join(known, ", "))));
  }
  if (!found->second) {
    throw ConfigError(fmt::format("{}: nothing is known to put in the place of @{}@", where, name));
  }
  return *found->second;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool is_about_memory(const std::string& option) {
  return option.starts_with("--mem=") || option.starts_with("--mem-per-");
}

// Returns the value of --mem; empty where the job asks for no memory, or in another way.
std::string memory_to_ask_for(const Site& site, const JobRequest& request, const JobPlan& plan) {
  const std::vector<std::string> given = words_of(site.extra + " " + request.sbatch);
  const bool asks = request.memory ||
                    (site.asks_memory && std::none_of(given.begin(), given.end(), is_about_memory));
  return asks ? fmt::format("{}M", plan.memory_mib) : "";
}

std::string site_sbatch(const Site& site, const JobRequest& request) {
  std::string lines;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) lines += fmt::format("#SBATCH --{}={}\n", option, value);
  };
  add("partition", site.partition);
  add("account", site.account);
  add("qos", site.qos);
  add("constraint", site.constraint);
  add("dependency", request.dependency);
  for (const std::string& option : words_of(site.extra + " " + request.sbatch)) {
    if (request.memory && is_about_memory(option)) continue;  // --memory is given
    lines += fmt::format("#SBATCH {}\n", option);
  }
  return lines;
}

// Returns the options of srun as words of a command.
std::string srun_words(const Site& site, const JobRequest& request) {
  std::string words;
  for (const std::string& option : words_of(site.srun + " " + request.srun)) {
    words += fmt::format("{}{}", words.empty() ? "" : " ", shell_word(option));
  }
  return words;
}

// Environment Modules 3 has a status of 0 whatever happens, and says ":ERROR:".
constexpr const char* kLoadModule = R"sh(load_module() {
  local said status told
  said=$(mktemp)
  module load "$1" 2> "$said"
  status=$?
  told=$(< "$said")
  rm -f "$said"
  [[ -z $told ]] || echo "$told" >&2
  [[ $status -ne 0 || $told == *:ERROR:* ]] || return 0
  echo "trireme: the module $1 cannot be loaded (environment.modules): the job ends" >&2
  exit 2
}
)sh";

// `options` are those of the script's #SBATCH lines.
std::string site_setup(const Site& site, const std::vector<std::string>& options) {
  std::string lines = remove_foreign_options(options);
  const std::vector<std::string> modules = words_of(site.modules);
  if (!modules.empty()) lines += kLoadModule;
  for (const std::string& module : modules) {
    lines += fmt::format("load_module {}\n", shell_word(module));
  }
  for (const std::string& variable : words_of(site.variables)) {
    const std::size_t equals = variable.find('=');
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const bool named =
        equals != std::string::npos && equals > 0 && is_letter(variable[0]) &&
        std::all_of(variable.begin(), variable.begin() + static_cast<std::ptrdiff_t>(equals),
                    [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
    if (!named) {
      throw ConfigError(
          fmt::format("environment.variables: '{}' is not NAME=VALUE, as in UCX_TLS=tcp,self",
                      shown(variable)));
    }
    lines += fmt::format("export {}={}\n", variable.substr(0, equals),
                         shell_word(std::string_view(variable).substr(equals + 1)));
  }
  return lines + site.setup;
}

std::string facts(const JobRequest& request, const JobPlan& plan) {
  std::string lines;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    const JobPoint& point = plan.points[i];
    const std::string which = point.nodes == 1 ? "1 node" : fmt::format("{} nodes", point.nodes);
    const int islands = point.config.grid.islands;
    lines += fmt::format("# {}{} x {} ranks of {} cores: {}grid {}, about {:.0f} MiB a rank\n",
                         plan.points.size() > 1 ? fmt::format("{}: ", i) : "", which,
                         request.tasks_per_node, request.cpus_per_task,
                         islands > 1 ? fmt::format("{} islands of ", islands) : "",
                         point.grid.to_string(), (point.memory.total + kProcessBytes) / 1048576.0);
  }
  return lines;
}

std::string points_text(const JobPlan& plan) {
  std::string lines;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    std::string words;
    for (const std::string& flag : plan.points[i].flags) {
      words += fmt::format("{}{}", words.empty() ? "" : " ", shell_word(flag));
    }
    lines += fmt::format("{}) point=({}) ;;\n", i, words);
  }
  return lines;
}

// Returns the flags that all points share.
std::string options_text(const Config& config, const JobRequest& request, const JobTemplate& given,
                         const JobPlan& plan) {
  const bool is_one_run = !given.uses("POINTS") && !given.uses("NODE_COUNTS");
  Config resolved = is_one_run ? with_fixed_grid(config, plan.points.front().grid) : config;
  // A record of a run has what auto came to there.
  if (!resolved.batch.micro.is_known()) resolved.batch.micro = {};
  if (!resolved.run.threads) resolved.run.threads = request.cpus_per_task;
  // If a job that requests GPUs gets none, it shall report that and not compute on CPUs.
  if (given.uses("GRES") && resolved.run.device == "auto") resolved.run.device = "cuda";
  std::vector<std::string> flags = config_to_flags(resolved);
  // A flag may be given only once, so one that comes later in the template is left out here.
  const auto later = [&](const std::string& flag) {
    const std::string name = flag.substr(0, flag.find('=') + 1);
    if (given.uses("RUN_FOLDER") && name == "--run.folder=") return true;
    return std::any_of(plan.points.begin(), plan.points.end(), [&](const JobPoint& point) {
      return std::any_of(point.flags.begin(), point.flags.end(),
                         [&](const std::string& own) { return own.starts_with(name); });
    });
  };
  std::string lines;
  for (const std::string& flag : flags) {
    if (!later(flag)) lines += fmt::format("{}\n", shell_word(flag));
  }
  return lines;
}

// Commands of the script would take "-x" for an option, and some "lr=1" for an assignment.
std::string as_operand(const std::string& path) {
  const bool is_plain = !path.starts_with('-') && path.find('=') == std::string::npos;
  return is_plain || path.starts_with('/') ? path : "./" + path;
}

}  // namespace

bool loads_program(const Site& site) {
  const std::vector<std::string> modules = words_of(site.modules);
  return std::any_of(modules.begin(), modules.end(), [](const std::string& module) {
    return module.substr(0, module.find('/')) == "trireme";
  });
}

bool JobTemplate::uses(std::string_view placeholder) const {
  return text.find(fmt::format("@{}@", placeholder)) != std::string::npos;
}

std::string log_pattern(const JobTemplate& job_template, const JobRequest& request) {
  const bool is_array = job_template.uses("POINTS") || job_template.uses("ISLANDS");
  return request.log.value_or(is_array ? "%x-%A_%a.out" : "%x-%j.out");
}

std::string fill_template(std::string_view text, const std::string& origin,
                          const Placeholders& values) {
  std::string result;
  int number = 0;
  for (const std::string_view line : lines_of(text)) {
    const std::string where = fmt::format("{}:{}", origin, ++number);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view rest = line.substr(indent);
    const std::string_view block =
        rest.starts_with("# @") ? placeholder_at(rest, 2) : std::string_view();
    if (!block.empty() && rest.size() == block.size() + 4) {
      for (const std::string_view own : lines_of(value_of(block, where, values))) {
        if (!own.empty()) result += line.substr(0, indent);
        result.append(own).append("\n");
      }
      continue;
    }
    std::string filled;
    bool asks_for_nothing = false;
    for (std::size_t at = 0; at < line.size(); ++at) {
      const std::string_view name = line[at] == '@' ? placeholder_at(line, at) : "";
      if (name.empty()) {
        filled += line[at];
      } else {
        const std::string& value = value_of(name, where, values);
        asks_for_nothing |= value.empty();
        filled += value;
        at += name.size() + 1;
      }
    }
    if (!line.starts_with("#SBATCH ") || !asks_for_nothing) result += filled + "\n";
  }
  return result;
}

std::string job_script(const JobTemplate& job_template, const Config& config,
                       const JobRequest& request, const Site& site, const JobPlan& plan,
                       const JobSources& sources) {
  const bool sweeps = job_template.uses("POINTS");
  std::string counts;
  for (const JobPoint& point : plan.points) {
    counts += fmt::format("{}{}", counts.empty() ? "" : " ", point.nodes);
  }
  Placeholders values = {
      {"NAME", request.name},
      {"LOG", log_pattern(job_template, request)},
      {"NODES", write_value(request.nodes)},
      {"TASKS_PER_NODE", std::to_string(request.tasks_per_node)},
      {"CPUS_PER_TASK", std::to_string(request.cpus_per_task)},
      {"MEMORY", memory_to_ask_for(site, request, plan)},
      {"TIME", request.time},
      {"GRACE", std::to_string(request.grace)},
      {"RESTARTS", std::to_string(request.restarts)},
      {"FAILURES", std::to_string(request.failures)},
      {"FEWEST_NODES", std::to_string(fewest_nodes(request, config, plan))},
      {"MODEL_RANKS", std::to_string(model_ranks(plan))},
      {"MICRO_BATCHES", std::to_string(micro_batches_to_divide(plan))},
      {"MPI", site.mpi},
      {"SRUN_OPTIONS", srun_words(site, request)},
      {"GRES", site.gres_name},
      {"TRIREME", loads_program(site) ? "trireme" : shell_word(sources.program)},
      {"RUN_FOLDER", shell_word(as_operand(config.run.folder))},
      {"LAST_POINT", std::to_string(plan.points.size() - 1)},
      {"NODE_COUNTS", counts},
      {"ISLANDS",
       job_template.uses("ISLANDS") ? std::optional(request.islands.array) : std::nullopt},
      {"FACTS", facts(request, plan)},
      {"SITE_SBATCH", site_sbatch(site, request)},
      {"SITE_SETUP", ""},
      {"STEP_FUNCTIONS", ""},
      {"OPTIONS", options_text(config, request, job_template, plan)},
      {"POINTS", sweeps ? std::optional(points_text(plan)) : std::nullopt},
  };
  const std::string head = fill_template(job_template.text, job_template.name, values);
  values["SITE_SETUP"] = site_setup(site, sbatch_options(head));
  values["STEP_FUNCTIONS"] = fill_template(sources.step_functions, "step.sh", values);
  return fill_template(job_template.text, job_template.name, values);
}

}  // namespace trireme
