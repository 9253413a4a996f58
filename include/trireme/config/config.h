// The configuration of a training run: all keys, how they are read, and how they are checked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/name_patterns.h"
#include "trireme/base/options.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/grid_shape.h"
#include "trireme/config/batch_balance.h"
#include "trireme/config/micro_size.h"
#include "trireme/config/stage_cut.h"
#include "trireme/config/steps.h"
#include "trireme/io/dataset.h"
#include "trireme/models/family.h"

namespace trireme {

// One member per key "section.key"; src/config/config_keys.cc says what each means, and its unit.
// The keys of model.* are those that the family declares.
// A key without a value follows from elsewhere: model.* from the preset, the data and built-in
// values; grid.* from the number of ranks; run.threads from the cores; schedule.* from run.steps.
struct Config {
  struct Run {
    std::string folder = "run";
    Steps steps = 1000;
    std::int64_t seed = 1;
    std::optional<int> threads;
    std::string resume = "auto";            // or "never", or the path of a checkpoint
    std::optional<std::string> start_from;  // the path of a checkpoint or of a run folder
    std::string fresh = "none";             // or "head"
    bool accept_changes = false;
    std::string device = "auto";
    std::string precision = "fp32";
    bool same_bits = false;
    bool operator==(const Run&) const = default;
  } run;

  models::ModelRequest model;

  struct Data {
    std::vector<WeightedPath> train, validation;
    bool mask_documents = false;
    double mask_share = 0.15;  // of masked language models
    // What happens to pictures in training.
    std::string crop = "centre";
    int padding = 0;  // pixels on each side
    bool flip = false;
    double least_area = 0.08, most_ratio = 4.0 / 3;
    int threads = 2;
    bool operator==(const Data&) const = default;
  } data;

  struct Batch {
    int global = 32;
    MicroSize micro = {};
    std::optional<int> runs = {};  // empty: follows from the grid (step_options, step_setup.h)
    BatchBalance balance = {};
    bool operator==(const Batch&) const = default;
  } batch;

  struct Optim {
    std::string name = "adamw";
    // What is not given has the default of the rule (optim/update_rule.h).
    std::optional<double> lr, weight_decay;
    std::optional<std::string> decay;  // "coupled", "decoupled"
    std::optional<double> beta1, beta2, eps;
    bool decay_norms = false;  // norms and biases decay, too
    // Largest global norm; norm of a parameter; element. 0: none.
    double clip = 1.0, clip_each = 0.0, clip_value = 0.0;
    std::optional<double> momentum;
    std::optional<bool> nesterov;
    std::string groups = "none";                // see optimizer_config.cc
    std::string muon_scale = "match_adamw";     // "original"
    std::optional<std::string> muon_precision;  // "fp32", "bf16"
    bool muon_heads = false;
    std::optional<double> adamw_lr;
    double lamb_clip = 0.0;  // 0: none
    double lars_coefficient = 0.001;
    double adafactor_clip = 1.0, adafactor_decay = -0.8;
    std::string average = "none";  // "ema", "swa"
    double average_decay = 0.999;
    Steps average_from = 0;
    std::optional<int> recompute_norms;  // micro-batches
    std::string freeze = "none";         // or a list, see frozen_parameters
    std::string loss_scale = "dynamic";  // or a number, see fixed_loss_scale
    int loss_scale_interval = 2000;      // steps
    std::string masters = "fp32";        // "split"
    bool operator==(const Optim&) const = default;
  } optim;

  struct Schedule {
    std::string name = "cosine";
    std::optional<Steps> warmup, decay;
    double factor = 0.1;
    std::optional<double> least;  // a part of optim.lr; empty: the curve's own
    std::optional<Steps> period;
    int period_factor = 1;
    std::optional<std::string> file;  // the path of a table
    bool operator==(const Schedule&) const = default;
  } schedule;

  struct Grid : GridRequest {
    std::string schedule = "1f1b";
    std::optional<int> chunks;  // on each stage; the schedule decides if it is not given
    StageCut cut = {};
    bool sequence_parallel = false;
    std::string order = "auto";  // or "rank", or the path of a file
    int islands = 1;
    bool operator==(const Grid&) const = default;
  } grid;

  // How islands meet (parallel/meeting.h).
  struct Sync {
    std::optional<int> every;  // steps; empty: kUsualEvery of several islands, and never of one
    std::string outer = "nesterov";
    double lr = 0.7, momentum = 0.9;
    int first = 0;  // steps
    int fragments = 1;
    int delay = 0;  // steps
    double mix = 0.5;
    std::string reduce = "fp32";
    // This job is one of several that carry the run, under this name; empty: it carries it alone.
    std::string member;
    double patience = 300;  // seconds
    int quorum = 1;         // members
    double stale = 0.5;     // per outer step
    double silence = 120;   // seconds
    int rejoin = 10;        // steps
    bool operator==(const Sync&) const = default;

    static constexpr int kUsualEvery = 50;
    bool is_member() const { return !member.empty(); }
  } sync;

  struct Shard {
    int stage = 0;             // ZeRO's
    std::optional<int> group;  // ranks; empty: the whole data dimension
    int prefetch = 1;          // blocks
    bool operator==(const Shard&) const = default;

    // What the data replicas that share a copy divide.
    bool divides_state() const { return stage >= 1; }  // the optimizer's, and master weights
    bool divides_gradients() const { return stage >= 2; }
    bool divides_weights() const { return stage >= 3; }
  } shard;

  struct Recompute {
    std::string mode = "none";
    int every = 1;              // blocks
    std::optional<int> blocks;  // of each stage; empty: all
    bool operator==(const Recompute&) const = default;
  } recompute;

  struct Cuda {
    bool graphs = false;
    int spare = 0;         // multiprocessors
    std::string products;  // a file of algorithms; empty: none
    bool operator==(const Cuda&) const = default;
  } cuda;

  struct Attention {
    bool deterministic = true;
    bool operator==(const Attention&) const = default;
  } attention;

  struct Eval {
    Steps every = 100;
    std::optional<std::int64_t> batches;
    std::string weights = "last";  // or "average"
    bool operator==(const Eval&) const = default;
  } eval;

  struct Log {
    std::int64_t every = 10;
    std::optional<std::string> trace;  // "12" or "10-12"; the steps to trace
    bool tensorboard = false;
    double stragglers = 60.0;  // seconds; 0: never
    bool operator==(const Log&) const = default;
  } log;

  struct Checkpoint {
    std::optional<Steps> every = 500;  // empty: the best interval for mtbf
    std::optional<double> mtbf;        // hours
    int keep = 3;
    double margin = 10;
    bool operator==(const Checkpoint&) const = default;
  } checkpoint;

  struct Check {
    Steps copies = 1000;  // 0: never
    bool operator==(const Check&) const = default;
  } check;

  // What `trireme plan` has said of the run's step, to be told beside what is measured.
  struct Plan {
    std::optional<double> step, low, high;  // seconds
    std::optional<int> ranks;
    std::string device, network;
    bool operator==(const Plan&) const = default;

    // Whether it is about a run on so many ranks.
    bool is_of(int on_ranks) const {
      return step.has_value() && ranks.value_or(on_ranks) == on_ranks;
    }
  } plan;

  struct Comm {
    std::string backend = "auto";
    std::optional<double> timeout;  // seconds; empty: what HangLimit says
    std::string network = "auto";   // or "none", or the path of a file of rates
    std::string order = "tree";
    std::string reduce = "fp32";
    std::string compress = "none";
    std::string algorithms = "auto";  // or a list, see chosen_algorithms
    bool tune = false;
    bool operator==(const Comm&) const = default;
  } comm;

  // Where no value is given, NCCL decides.
  struct Nccl {
    std::string tuner = "off";  // or the path of a table
    std::optional<int> min_channels, max_channels, channels_per_peer, traffic_class;
    std::optional<bool> collnet;
    std::optional<std::string> network;
    std::string policy = "default";  // or "efficiency", "zero"
    std::optional<int> nvls_channels;
    bool operator==(const Nccl&) const = default;
  } nccl;

  bool operator==(const Config&) const = default;
};

// Declares every key of the configuration, bound to `config`, and the aliases --threads, --resume
// and --device. The defaults are the present values in `config`.
void add_config_keys(Options& options, Config& config);
// Declares the keys of the grid's dimensions alone, for commands that take no configuration.
void add_dimension_keys(Options& options, GridRequest& grid);
// Declares model.family and the keys of the families.
void add_model_keys(Options& options, models::ModelRequest& model);
// Calls `visit` for each path among the values. A word in the place of a path ("auto", "none") is
// none.
void visit_paths(Config& config, const std::function<void(std::string&)>& visit);
// Returns the configuration with absolute paths. They may name links, and need not exist.
Config with_absolute_paths(Config config);
// Declares shard.*.
void add_shard_keys(Options& options, Config::Shard& shard);

// Reads the file that --config names. Where it is the config.ini of a run, in the run's folder or a
// link to it, run.folder is that folder, wherever it is and whatever the file says, and keys that
// belong to one start (earlier versions kept them) become comments; a line tells of those that
// asked for something. The paths in any other file are relative to the working directory. Throws
// ConfigError, or RunFolderError where the folder beside the file cannot be read.
std::string read_run_config(const std::string& path);
// Returns the folder of the run whose own config.ini this is; nothing if it is another file.
std::optional<std::string> run_of_config(const std::string& path);

struct ParsedConfig {
  Config config;
  // What to show if --help was given; then nothing else was read or checked.
  std::optional<CommandDescription> help = {};
};

// Parses the arguments of `trireme train` after its name: --config FILE, flags (which win over the
// file), --help. `base` holds the values of keys that neither of them sets. `read` reads the file.
// Checks the result with check_config. Throws ConfigError.
ParsedConfig parse_config(const std::vector<std::string>& arguments, const Config& base = {},
                          const ConfigReader& read = read_run_config);

// Checks each of these flags, but not the file that --config names. Returns the path of that file,
// which is to be read later, or nothing if none is named or --help is among the flags. Where the
// file may say which family the model is of, the keys of each are accepted.
std::optional<std::string> config_file_of(const std::vector<std::string>& arguments);

// The text that `trireme train --help` shows: every key with its default and unit.
std::string config_help();
CommandDescription describe_config();

// Returns the values that differ from the built-in ones, as flags of `trireme train`:
// "--model.layers=8".
std::vector<std::string> config_to_flags(const Config& config);

// Returns the resolved configuration as INI text, without the keys that belong to one start.
// config_from_ini turns it into an equal Config but for those.
std::string config_to_ini(const Config& config);
// The same for the keys of a model alone.
std::string model_to_ini(const models::ModelRequest& model);
// `origin` names the text in errors. Checks each value, but not the keys against each other.
Config config_from_ini(std::string_view text, const std::string& origin);

// Returns batch.micro as far as the keys decide it: the number that is given, or 4 where results
// depend on it (run.same_bits, batch norms). Nothing: it is auto, which settled_micro.h settles.
std::optional<int> micro_of_keys(const Config& config);
// Gives batch.micro that number, if there is one.
void write_out_micro(Config& config);

// The folder of this job's own files: run.folder, or that of a member in there.
std::string folder_of_job(const Config& config);

// Returns after how many steps islands meet; nothing: they never do.
std::optional<int> steps_between_meetings(const Config& config);

// Whether this job is a member that takes as many steps as fit a time: more or fewer than
// run.steps.
bool takes_steps_by_time(const Config& config);

// Returns how many runs the micro-batches of a step are (batch.runs, or with run.same_bits the
// largest power of two up to 16 that divides them); 0: that follows from the grid.
int runs_of_batch(const Config& config);

// Turns the keys that are given in epochs into steps, once the number of samples in an epoch of the
// training data is known, and makes the checks again that need them. Throws ConfigError.
void resolve_epochs(Config& config, std::uint64_t samples_per_epoch);

// Whether the bits of a run on CPUs depend on which algorithm carries a sum, and on where the ranks
// are.
bool sums_depend_on_algorithm(const Config::Comm& comm);

// A setting whose value has changed.
struct ChangedSetting {
  std::string name, before, now;
  OnChange on_change = OnChange::kResults;

  std::string text() const;  // "optim.lr was 0.001, is 0.002"
};
// Returns the settings that can change results or rounding and whose value in `now` differs from
// that in `before`, in the order of the table of keys. `before` is the INI text of another start's
// resolved configuration; `origin` names it in errors. Lengths of schedule.* that have no value are
// compared as they follow from run.steps. Keys of OnChange::kCompared are not compared here. Nor
// are keys that `before` lacks, except that a missing key counts as "auto" if that is its default
// and it is neither of OnChange::kOtherRun nor batch.micro, of which the number is recorded.
std::vector<ChangedSetting> changed_settings(std::string_view before, const std::string& origin,
                                             const Config& now);

// An algorithm that carries a collective, whatever its size.
struct ChosenAlgorithm {
  Collective collective;
  Algorithm algorithm;
};
// Returns what comm.algorithms lists; nothing if it is "auto". Throws ConfigError for what is no
// COLLECTIVE=ALGORITHM, or what comm.order does not allow.
std::vector<ChosenAlgorithm> chosen_algorithms(const Config::Comm& comm);

// The patterns of optim.freeze; none where it is "none". Throws ConfigError for an empty pattern.
NamePatterns frozen_parameters(const Config::Optim& optim);

// Returns the number in optim.loss_scale, or nothing if it is "dynamic". Throws ConfigError if it
// is neither, or a number beyond what fp16 can take.
std::optional<double> fixed_loss_scale(const std::string& loss_scale);

// Makes the checks between keys that need neither ranks nor data. Keys without a value, or with one
// in epochs, are not checked, so call it again once a preset has filled in the model. Throws
// ConfigError.
void check_config(const Config& config);
// The same, but data.train may be missing: for commands that read no data.
void check_config_without_data(const Config& config);

}  // namespace trireme
