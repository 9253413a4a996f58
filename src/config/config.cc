#include "trireme/config/config.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/config/schedule_options.h"
#include "trireme/config/step_range.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/io/outer_record.h"

namespace trireme {
namespace {

constexpr const char* kUsage = "trireme train [--config FILE] [--SECTION.KEY VALUE]...";

// What batch.micro is where results depend on it and nobody gives it.
constexpr int kUsualMicro = 4;

// Where results depend on batch.micro, it must not depend on the machine.
void check_micro_is_number(const Config& config) {
  if (!config.batch.micro.is_written_auto()) return;
  const bool of_norms = models::has_batch_norms(config.model);
  if (!of_norms && !config.run.same_bits) return;
  throw ConfigError(fmt::format(
      "batch.micro is auto, but {}: give a number, or leave it out for {}",
      of_norms ? fmt::format("what the batch norms of model.family {} compute depends on it",
                             config.model.family)
               : "the bits of run.same_bits depend on it",
      kUsualMicro));
}

void check_batch(const Config& config) {
  check_micro_is_number(config);
  const int global = config.batch.global;
  const int micro = micro_of_keys(config).value_or(1);
  if (global % micro == 0) return;
  const int below = global / micro * micro;
  const std::string multiple = below == 0
                                   ? fmt::format("{}", micro)
                                   : fmt::format("{} or {}", below, std::int64_t{below} + micro);
  int divisor = std::min(micro, global);
  while (global % divisor != 0) --divisor;
  throw ConfigError(fmt::format(
      "batch.global is {}, which is no multiple of batch.micro, {}: set batch.global to {}, or "
      "batch.micro to {}",
      global, micro, multiple, divisor));
}

void check_data(const Config::Data& data) {
  refuse_weights("data.validation", data.validation);
  if (data.padding > 0 && data.crop != "random") {
    throw ConfigError(
        fmt::format("data.padding is {}, but data.crop is {}: only random pads pictures, so leave "
                    "it out",
                    data.padding, data.crop));
  }
}

void check_start(const Config::Run& run) {
  if (!run.start_from && run.fresh != "none") {
    throw ConfigError(fmt::format(
        "run.fresh is {}, but without run.start_from all values are initial ones: leave it out",
        run.fresh));
  }
}

// A key of data.* that the family's data do not have would do nothing.
void check_data_of_family(const Config& config) {
  const models::Family& family = models::find_family(config.model.family);
  const bool pictures = family.task() == "classification";
  const Config::Data& given = config.data;
  const Config::Data usual{};
  const auto check = [&](bool of_pictures, bool differs, const char* key) {
    if (!differs || of_pictures == pictures) return;
    const auto name = [](bool are_pictures) { return are_pictures ? "pictures" : "text"; };
    throw ConfigError(
        fmt::format("data.{} is for {}, but model.family {} trains on {}: leave it out", key,
                    name(of_pictures), family.name(), name(pictures)));
  };
  if (given.mask_share != usual.mask_share && family.task() != "masked_language_model") {
    throw ConfigError(
        fmt::format("data.mask_share is for masked language models, but model.family {} is none: "
                    "leave it out",
                    family.name()));
  }
  check(false, given.mask_documents != usual.mask_documents, "mask_documents");
  check(true, given.crop != usual.crop, "crop");
  check(true, given.padding != usual.padding, "padding");
  check(true, given.flip != usual.flip, "flip");
  check(true, given.least_area != usual.least_area, "least_area");
  check(true, given.most_ratio != usual.most_ratio, "most_ratio");
  check(true, given.threads != usual.threads, "threads");
}

void check_loss_scale(const Config& config) {
  const bool fixed = fixed_loss_scale(config.optim.loss_scale).has_value();
  if (fixed && config.run.precision != "fp16") {
    throw ConfigError(fmt::format(
        "optim.loss_scale is {}, but run.precision is {}: only fp16 needs one, so leave it out",
        config.optim.loss_scale, config.run.precision));
  }
  const int interval = config.optim.loss_scale_interval;
  const bool searches = config.run.precision == "fp16" && !fixed;
  if (searches || interval == Config::Optim().loss_scale_interval) return;
  throw ConfigError(fmt::format(
      "optim.loss_scale_interval is {}, but {}, so leave it out", interval,
      fixed
          ? fmt::format("optim.loss_scale is {}: only dynamic doubles", config.optim.loss_scale)
          : fmt::format("run.precision is {}: only fp16 has a loss scale", config.run.precision)));
}

void check_logits(const Config& config) {
  const auto logits = option_value<std::string>(config.model.keys, "model", "logits");
  const std::string& precision = config.run.precision;
  if (logits != "bf16" || precision == "bf16" || precision == "fp8") return;
  throw ConfigError(fmt::format(
      "model.logits is bf16, but run.precision is {}: give run.precision bf16, or leave "
      "model.logits out",
      precision));
}

void check_same_bits(const Config& config) {
  if (!config.run.same_bits) return;
  if (config.batch.runs && *config.batch.runs != runs_of_batch(config)) {
    throw ConfigError(fmt::format("batch.runs is {}, but run.same_bits makes it {}: leave it out",
                                  *config.batch.runs, runs_of_batch(config)));
  }
  if (sums_depend_on_algorithm(config.comm)) {
    throw ConfigError(
        fmt::format("run.same_bits needs sums with one order: comm.order tree and comm.reduce "
                    "fp32, not {} and {}",
                    config.comm.order, config.comm.reduce));
  }
  if (config.comm.backend == "nccl") {
    throw ConfigError(
        "run.same_bits needs sums with one order, which NCCL does not promise: give "
        "--comm.backend mpi, or leave it out");
  }
  if (!config.attention.deterministic) {
    throw ConfigError(
        "run.same_bits needs sums with one order: leave attention.deterministic false out");
  }
  if (!config.cuda.products.empty()) {
    throw ConfigError(
        "run.same_bits needs products with one order of sums, which cuda.products chooses by time: "
        "leave one out");
  }
  if (config.comm.compress != "none") {
    throw ConfigError(fmt::format(
        "run.same_bits keeps bits where a run goes on, which comm.compress {} does not: "
        "leave one out",
        config.comm.compress));
  }
}

void check_compress(const Config& config) {
  const std::string& compress = config.comm.compress;
  if (compress == "none") return;
  if (config.comm.reduce != "fp32") {
    throw ConfigError(
        fmt::format("comm.compress is {}, but comm.reduce is {}: gradients travel as one of them, "
                    "so leave one out",
                    compress, config.comm.reduce));
  }
  if (config.shard.divides_gradients()) {
    throw ConfigError(
        fmt::format("comm.compress is {}, but shard.stage is {}: only with 0 and 1 a rank holds "
                    "whole gradients to compress, so leave one out",
                    compress, config.shard.stage));
  }
}

// Shares that differ change the order of sums, and gain nothing where replicas wait for each other
// within a step.
void check_balance(const Config& config) {
  const BatchBalance& balance = config.batch.balance;
  if (balance.is_even()) return;
  const auto refuse = [&](std::string_view why, std::string_view remedy) {
    throw ConfigError(fmt::format("batch.balance is {}, but {}: {}leave it out",
                                  shown(write_value(balance)), why, remedy));
  };
  if (config.run.same_bits) refuse("the bits of run.same_bits must depend on no share", "");
  if (models::joins_replicas(config.model)) {
    refuse("the data replicas compute each micro-batch together (model.batch_norm sync)",
           "take model.batch_norm replica, or ");
  }
  if (config.shard.divides_gradients()) {
    refuse(fmt::format("with shard.stage {} data replicas wait for each other at each micro-batch",
                       config.shard.stage),
           "take shard.stage 1, or ");
  }
  if (config.grid.islands > 1) {
    refuse(fmt::format("there are {} islands (grid.islands), and each would need shares of its own",
                       config.grid.islands),
           "");
  }
  if (balance.is_auto() && config.sync.is_member()) {
    refuse("a member of a run (sync.member) goes by speeds that are given", "give them, or ");
  }
  if (balance.is_auto() && config.log.stragglers == 0.0) {
    refuse("nothing measures the replicas (log.stragglers 0)",
           "give log.stragglers seconds, or their speeds, or ");
  }
}

// A member meets the others through files: all at once, in full.
void check_member(const Config& config) {
  const Config::Sync& sync = config.sync;
  const auto refuse = [](bool differs, std::string_view key, const auto& value,
                         std::string_view why) {
    if (!differs) return;
    throw ConfigError(fmt::format("{} is {}, but {}: leave it out", key, value, why));
  };
  if (!is_member_name(sync.member)) {
    throw ConfigError(
        fmt::format("sync.member '{}': a name has letters, digits, -, _ and . alone, and does not "
                    "begin with .",
                    shown(sync.member)));
  }
  constexpr std::string_view kOneIsland = "a job with sync.member is one island";
  constexpr std::string_view kFiles = "members (sync.member) meet through files, in full";
  refuse(config.grid.islands > 1, "grid.islands", config.grid.islands, kOneIsland);
  refuse(sync.first > 0, "sync.first", sync.first, kFiles);
  refuse(sync.fragments > 1, "sync.fragments", sync.fragments, kFiles);
  refuse(sync.delay > 0, "sync.delay", sync.delay, kFiles);
  refuse(sync.reduce != "fp32", "sync.reduce", sync.reduce, kFiles);
  refuse(config.eval.weights != "last", "eval.weights", config.eval.weights,
         "members (sync.member) evaluate the outer weights, which have no average");
}

void check_recompute(const Config::Recompute& recompute) {
  if (!recompute.blocks || recompute.mode != "none") return;
  throw ConfigError(
      fmt::format("recompute.blocks is {}, but recompute.mode is none: give selective or full, or "
                  "recompute.blocks auto",
                  *recompute.blocks));
}

// Keys of meetings where there are none would do nothing.
void check_sync(const Config& config) {
  const Config::Sync& sync = config.sync;
  const Config::Sync usual{};
  const auto refuse = [](bool differs, std::string_view key, const auto& value,
                         std::string_view why) {
    if (!differs) return;
    throw ConfigError(fmt::format("sync.{} is {}, but {}: leave it out", key, value, why));
  };
  if (sync.is_member()) check_member(config);
  const std::optional<int> every = steps_between_meetings(config);
  if (!every) {
    constexpr std::string_view kNone = "there is one island (grid.islands) and no sync.every";
    refuse(sync.outer != usual.outer, "outer", sync.outer, kNone);
    refuse(sync.lr != usual.lr, "lr", sync.lr, kNone);
    refuse(sync.momentum != usual.momentum, "momentum", sync.momentum, kNone);
    refuse(sync.first != usual.first, "first", sync.first, kNone);
    refuse(sync.fragments != usual.fragments, "fragments", sync.fragments, kNone);
    refuse(sync.delay != usual.delay, "delay", sync.delay, kNone);
    refuse(sync.mix != usual.mix, "mix", sync.mix, kNone);
    refuse(sync.reduce != usual.reduce, "reduce", sync.reduce, kNone);
    return;
  }
  if (sync.outer == "average") {
    refuse(sync.lr != usual.lr, "lr", sync.lr, "sync.outer is average");
    refuse(sync.momentum != usual.momentum, "momentum", sync.momentum, "sync.outer is average");
  }
  refuse(sync.mix != usual.mix && sync.delay == 0, "mix", sync.mix,
         "without sync.delay an island goes on with the outer weights alone");
  if (sync.delay >= *every) {
    throw ConfigError(fmt::format(
        "sync.delay is {}, but a fragment meets again after {} steps (sync.every): give fewer",
        sync.delay, *every));
  }
  if (sync.fragments > *every) {
    throw ConfigError(fmt::format(
        "sync.fragments is {}, but at most one meets after each of the {} steps of sync.every",
        sync.fragments, *every));
  }
  if (config.grid.islands == 1) {
    refuse(sync.reduce != usual.reduce, "reduce", sync.reduce,
           "one island (grid.islands) sends nothing");
    return;
  }
  if (config.comm.tune) {
    throw ConfigError(
        "comm.tune tries algorithms in the steps of all ranks, which islands (grid.islands) do not "
        "have: leave it out");
  }
  if (sync.first > 0 && config.cuda.graphs) {
    throw ConfigError(
        "cuda.graphs captures one kind of step, and the first sync.first steps are of another: "
        "leave one out");
  }
}

// The keys in steps that may be given in epochs. Those without a value are left out.
std::vector<Steps*> all_steps(Config& config) {
  std::vector<Steps*> all = {&config.run.steps, &config.eval.every, &config.check.copies,
                             &config.optim.average_from};
  for (std::optional<Steps>* steps : {&config.schedule.warmup, &config.schedule.decay,
                                      &config.schedule.period, &config.checkpoint.every}) {
    if (*steps) all.push_back(&**steps);
  }
  return all;
}

// The table of keys over a configuration, with the defaults of one that nothing was set in.
struct TableToWrite {
  explicit TableToWrite(const Config& from) : options(kUsage) {
    config.model.family = from.model.family;
    add_config_keys(options, config);
    config = from;
  }
  TableToWrite(const TableToWrite&) = delete;
  TableToWrite& operator=(const TableToWrite&) = delete;

  Config config;
  Options options;
};

}  // namespace

void resolve_epochs(Config& config, std::uint64_t samples_per_epoch) {
  const std::vector<Steps*> all = all_steps(config);
  if (std::ranges::none_of(all, [](const Steps* steps) { return steps->epochs().has_value(); })) {
    return;
  }
  const std::int64_t of_step = std::int64_t{config.batch.global} * config.grid.islands;
  for (Steps* steps : all) steps->resolve(samples_per_epoch, of_step);
  check_config_without_data(config);
}

std::optional<int> micro_of_keys(const Config& config) {
  if (config.batch.micro.is_known()) return int{config.batch.micro};
  if (config.run.same_bits || models::has_batch_norms(config.model)) return kUsualMicro;
  return {};
}

void write_out_micro(Config& config) {
  if (const std::optional<int> micro = micro_of_keys(config)) config.batch.micro = *micro;
}

std::string folder_of_job(const Config& config) {
  const std::string& member = config.sync.member;
  return member.empty() ? config.run.folder : config.run.folder + "/islands/" + member;
}

std::optional<int> steps_between_meetings(const Config& config) {
  const bool meets = config.grid.islands > 1 || config.sync.is_member();
  if (config.sync.every || !meets) return config.sync.every;
  return Config::Sync::kUsualEvery;
}

bool takes_steps_by_time(const Config& config) {
  return config.sync.is_member() && !config.sync.every;
}

int runs_of_batch(const Config& config) {
  if (!config.run.same_bits) return config.batch.runs.value_or(0);
  constexpr int kMostRuns = 16;
  const int micro_batches = config.batch.global / micro_of_keys(config).value();
  int runs = 1;
  while (runs < kMostRuns && micro_batches % (2 * runs) == 0) runs *= 2;
  return runs;
}

NamePatterns frozen_parameters(const Config::Optim& optim) {
  if (optim.freeze == "none") return {};
  NamePatterns patterns = NamePatterns::of_list(optim.freeze);
  if (patterns.has_empty_pattern()) {
    throw ConfigError(fmt::format(
        "optim.freeze {}: holds an empty pattern; give names between commas, as in embedding.*",
        shown(optim.freeze)));
  }
  return patterns;
}

std::optional<double> fixed_loss_scale(const std::string& loss_scale) {
  if (loss_scale == "dynamic") return std::nullopt;
  double value = 0.0;
  const std::string problem = read_value(loss_scale, value, above(0));
  constexpr double kLargest = 32768.0;  // the next power of two is infinite in fp16
  constexpr double kSmallest = 1e-30;   // well within the range of fp32
  if (!problem.empty() || value < kSmallest || value > kLargest) {
    throw ConfigError(fmt::format("optim.loss_scale {}: must be dynamic, or from 1e-30 to {}",
                                  shown(loss_scale), kLargest));
  }
  return value;
}

void check_config(const Config& config) {
  if (config.data.train.empty()) {
    throw ConfigError("data.train is missing: name what to train on, as in --data.train train.h5");
  }
  check_config_without_data(config);
}

void check_config_without_data(const Config& config) {
  check_start(config.run);
  check_data(config.data);
  check_data_of_family(config);
  check_batch(config);
  check_same_bits(config);
  check_compress(config);
  check_balance(config);
  check_sync(config);
  check_recompute(config.recompute);
  models::find_family(config.model.family).check_keys(config.model.keys);
  check_loss_scale(config);
  check_logits(config);
  check_optimizer(config);
  frozen_parameters(config.optim);
  check_learning_rate(config);
  if (!config.checkpoint.every && !config.checkpoint.mtbf) {
    throw ConfigError(
        "checkpoint.every = auto needs checkpoint.mtbf: the mean time between failures of the "
        "whole job, in hours, as in --checkpoint.mtbf 24");
  }
  if (config.log.trace) parse_step_range(*config.log.trace);
  chosen_algorithms(config.comm);
  const std::optional<int>&fewest = config.nccl.min_channels, &most = config.nccl.max_channels;
  if (fewest && most && *fewest > *most) {
    throw ConfigError(
        fmt::format("nccl.min_channels is {}, but nccl.max_channels is {}", *fewest, *most));
  }
  if (config.comm.backend == "nccl" && config.run.device != "cuda") {
    throw ConfigError(fmt::format("comm.backend = nccl needs run.device = cuda, but it is {}",
                                  config.run.device));
  }
}

ParsedConfig parse_config(const std::vector<std::string>& arguments, const Config& base,
                          const ConfigReader& read) {
  ParsedConfig result{base};
  Options options(kUsage, true);
  add_config_keys(options, result.config);
  options.ignore_section("job");  // for `trireme job`
  options.parse(arguments, read);
  if (options.help_requested()) {
    result.help = options.description();
  } else {
    check_config(result.config);
  }
  return result;
}

std::optional<std::string> config_file_of(const std::vector<std::string>& arguments) {
  std::optional<std::string> file;
  const auto check = [&](std::string_view family) {
    Config scratch;
    scratch.model.family = family;
    Options options(kUsage, true);
    add_config_keys(options, scratch);
    file.reset();
    options.parse(arguments, [&](const std::string& path) {
      file = path;
      return std::string();
    });
  };
  for (const models::Family* family : models::families()) {
    try {
      check(family->name());
      return file;
    } catch (const ConfigError&) {  // perhaps the flags are keys of another family
      if (!file) throw;
    }
  }
  check(Config().model.family);
  return file;
}

CommandDescription describe_config() {
  Config config;
  Options options(kUsage, true);
  add_config_keys(options, config);
  return options.description();
}

std::string config_help() {
  return help_text(describe_config());
}

std::string config_to_ini(const Config& config) {
  return TableToWrite(config).options.to_ini();
}

std::string model_to_ini(const models::ModelRequest& model) {
  models::ModelRequest written{model.family, {}};
  Options options(kUsage);
  add_model_keys(options, written);
  written = model;
  return options.to_ini();
}

std::vector<std::string> config_to_flags(const Config& config) {
  std::vector<std::string> flags = TableToWrite(config).options.to_flags();
  if (config.model.family != Config().model.family) {
    flags.insert(flags.begin(), "--model.family=" + config.model.family);
  }
  return flags;
}

Config config_from_ini(std::string_view text, const std::string& origin) {
  Config config;
  Options options(kUsage);
  add_config_keys(options, config);
  options.ignore_section("job");  // for `trireme job`
  options.parse_ini(text, origin);
  return config;
}

}  // namespace trireme
