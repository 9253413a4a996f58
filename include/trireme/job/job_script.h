// Makes a job script for Slurm from a configuration, a site file and a template: `trireme job`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/setup/memory_check.h"

namespace trireme {

// The contents of a site file (jobs/site.ini documents each key). Empty: left to Slurm.
struct Site {
  std::string partition, account, qos, constraint;
  std::string mpi = "pmi2";
  std::string gres_name = "gpu";
  std::optional<std::int64_t> memory;      // of a node, in MiB
  std::optional<std::int64_t> gpu_memory;  // of a GPU, in MiB
  bool asks_memory = true;                 // whether jobs ask for memory (--mem)
  std::string extra, srun;                 // options of sbatch and srun, separated by spaces
  std::string modules, variables;          // lists separated by spaces
  std::string setup;                       // lines of shell
};

// Whether the site's modules bring the program that its jobs run (trireme/...).
bool loads_program(const Site& site);

// Parses a site file. `origin` names the text in errors. Throws ConfigError for an unknown key, or
// for a value that cannot be put in a script.
Site site_from_ini(std::string_view text, const std::string& origin);

// How many nodes a job may get: as many as are free, from `least` to `most`.
struct NodeRange {
  NodeRange(int nodes = 1) : least(nodes), most(nodes) {}
  NodeRange(int fewest, int many) : least(fewest), most(many) {}
  int least, most;
};
// "4" or "2-4"; the limit is that of both numbers.
std::string read_value(std::string_view text, NodeRange& value, const Limit& limit);
std::string write_value(const NodeRange& value);
inline std::string value_placeholder(const NodeRange&) {
  return "N|N-N";
}

// The numbers of the members that jobs carry, in order: "1-8", "1,3,5", or "8" for "1-8".
struct IslandNumbers {
  std::string array;  // as sbatch takes it; empty: none
  int most() const;   // the largest; 0: none
  bool operator==(const IslandNumbers&) const = default;
};
std::string read_value(std::string_view text, IslandNumbers& value, const Limit& limit);
std::string write_value(const IslandNumbers& value);
inline std::string value_placeholder(const IslandNumbers&) {
  return "N|N-N|N,N";
}

// The keys job.*.
struct JobRequest {
  NodeRange nodes;
  int tasks_per_node = 1;
  int cpus_per_task = 1;
  std::optional<std::string> memory;  // of a node: "1500", "1500M", "2G"
  std::string time = "01:00:00";
  std::string name = "trireme";
  std::optional<std::string> log;
  int grace = 120;      // seconds
  int restarts = 1000;  // times
  int failures = 5;     // in a row
  int min_nodes = 1;
  std::optional<std::string> partition, account;  // in place of the site's
  std::string srun, sbatch;                       // options of both, after the site's
  std::string dependency;                         // as sbatch takes it: "afterok:12"
  std::string sweep;                              // "optim.lr=1e-3,3e-4 run.seed=1,2"
  std::string counts;                             // "1,2,4"
  IslandNumbers islands;
};

// Declares job.*, and the aliases without "job.".
void add_job_keys(Options& options, JobRequest& request);

// Throws ConfigError for a value that cannot be put in a script.
void check_job_keys(const JobRequest& request);

// One run of a job: a point of a sweep or of a scaling study, or the only one.
struct JobPoint {
  Config config;
  std::vector<std::string> flags;  // added to the job's own flags for this point
  int nodes = 1;
  GridShape grid;
  PeakMemory memory;  // of the rank that needs most
};

struct JobPlan {
  std::vector<JobPoint> points;
  std::int64_t memory_mib = 0;  // memory of a node to request from Slurm
  std::string of_nodes{};       // what the user should know of numbers of nodes; empty: nothing
};

// A template's text, and its name in errors.
struct JobTemplate {
  std::string name, text;
  bool uses(std::string_view placeholder) const;  // "GRES"
};

// Returns the file of a job's log, in which Slurm fills in %x, %j and others.
std::string log_pattern(const JobTemplate& job_template, const JobRequest& request);

// Returns what data.train say about the model, as far as it is known on this host.
using FactsOfData = std::function<models::DataFacts(const Config&)>;

// The same as tasks::Task::facts_on_this_host of the model's task.
models::DataFacts facts_to_check(const Config& config);

// Nodes of a partition with equal CPUs and memory.
struct NodeGroup {
  std::string partition;
  int nodes = 0;
  int cpus = 0;             // of each, as Slurm counts them
  std::int64_t memory = 0;  // of each, in MiB
};

// Known limits of the cluster. What is not known is not checked.
struct ClusterLimits {
  std::optional<std::int64_t> node_memory, gpu_memory;  // in MiB
  bool program_of_module = false;  // jobs run another program than this one (loads_program)
  std::vector<NodeGroup> groups;   // of all partitions that the job may go to
};

// Returns what the job will run. Throws a one-line ConfigError for what cannot run: it makes the
// same checks as `trireme train`, and refuses nodes and CPUs that no partition has, a time limit
// that leaves no time to train, and ranks that need more memory than a node has (for a template
// that asks for GPUs: than a GPU has).
JobPlan plan_job(const JobTemplate& job_template, const Config& config, const JobRequest& request,
                 const ClusterLimits& limits, const FactsOfData& facts);

// Returns what the user should know before the job is queued, one line each: data files in folders
// that do not exist on this host, nodes that may be left out, and a dimension of the grid that
// nobody asked for. Throws
// DataError for a file that is missing from a folder that exists here.
std::vector<std::string> job_remarks(const JobPlan& plan);

// Files on the machine that fills in the script.
struct JobSources {
  std::string program;         // absolute path of trireme
  std::string step_functions;  // text of jobs/step.sh
};

// Returns the complete script. Throws ConfigError for a placeholder that is unknown or has no
// value.
std::string job_script(const JobTemplate& job_template, const Config& config,
                       const JobRequest& request, const Site& site, const JobPlan& plan,
                       const JobSources& sources);

// Returns the options of a script's #SBATCH lines, without their quotes: those that sbatch reads,
// up to the first command. A ":" parts those of a heterogeneous job.
std::vector<std::string> sbatch_options(std::string_view script);

// Replaces @NAME@ by its value, and a line "# @NAME@" by the value's lines with the same
// indentation. Values are not searched for placeholders again (job_script fills in @STEP_FUNCTIONS@
// beforehand). A line "#SBATCH --mem=@MEMORY@" with an empty value is left out: nothing is asked
// for. Throws ConfigError for a name that `values` lacks, with the nearest known name, and for a
// name whose value is nullopt. `origin` names the text in errors.
using Placeholders = std::map<std::string, std::optional<std::string>, std::less<>>;
std::string fill_template(std::string_view text, const std::string& origin,
                          const Placeholders& values);

// Returns `text` as one word of a shell's command line, quoted where necessary.
std::string shell_word(std::string_view text);

// Parses a time limit as sbatch takes it ("90", "1:30", "02:00:00", "1-12", "1-12:30") and returns
// seconds; nullopt where it means no limit ("0", "infinite"). `key` names the value in errors.
// Throws ConfigError.
std::optional<std::int64_t> read_time_limit(const std::string& text, const std::string& key);

// Parses "1500", "1500M" or "2G" as read_size does (MiB without a unit) and returns MiB. `key`
// names the value in errors. Throws ConfigError.
std::int64_t read_mib(std::string_view text, const std::string& key);

}  // namespace trireme
