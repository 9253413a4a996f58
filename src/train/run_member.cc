#include "train/run_member.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/node_names.h"
#include "trireme/io/together.h"
#include "trireme/ops/elementwise.h"
#include "trireme/parallel/tree_sum.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/step_setup.h"

namespace trireme {
namespace {

constexpr const char* kRootConfig = "config.ini";
constexpr std::string_view kStates = "state/";
constexpr double kBeats = 6;                        // of the heart within sync.silence
constexpr double kLooks = 30;                       // at the folder, likewise
constexpr double kMostPoll = 1, kLeastPoll = 0.05;  // seconds between two looks
constexpr double kLongWait = 10;                    // seconds, after which a line says so

// What the last wait ends with, in place of a state.
class Stopped : public std::exception {};

std::string config_of_all(Config config) {
  config.sync.member.clear();
  return config_to_ini(with_absolute_paths(std::move(config)));
}

IslandRules rules_of(const Config& config) {
  const Config::Sync& sync = config.sync;
  const std::int64_t every = steps_between_meetings(config).value();
  const std::int64_t steps = config.run.steps;
  return {.steps = every,
          .even_time = !sync.every.has_value(),
          .samples = config.batch.global,
          .quorum = sync.quorum,
          .patience = sync.patience,
          .stale = sync.stale,
          .silence = sync.silence,
          .poll = std::clamp(sync.silence / kLooks, kLeastPoll, kMostPoll),
          .updates = (steps + every - 1) / every};
}

Json json_of(const TensorFile& file) {
  return Json::object({{"file", file.name}, {"checksum", file.checksum}});
}

// A digest of a file of tensors.
std::string digest_of(const CheckpointContents& contents) {
  std::string text;
  for (const CheckpointTensor& tensor : contents.tensors) {
    text += fmt::format("{} {} {} {:016x}\n", tensor.name, tensor.shape.to_string(),
                        name_of(tensor.dtype), tensor.checksum);
  }
  return trireme::digest_of(text);
}

// The part that each weight is of all.
std::vector<float> shares_of(const std::vector<double>& weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<float> shares;
  for (const double weight : weights) shares.push_back(static_cast<float>(weight / all));
  return shares;
}

TensorFile file_of(const Json& json) {
  return {json.at("file").text(), json.at("checksum").text()};
}

}  // namespace

void check_members(Communicator& world, const Config& config) {
  const std::string& root = config.run.folder;
  constexpr ExitStatus kFault = ExitStatus::kRunFolder;
  const std::string text = world.read_once([&]() -> std::string {
    const bool by_members = look_ahead(root + "/outer", kFault).is_there();
    if (!config.sync.is_member()) {
      if (!by_members) return "";
      throw ConfigError(
          root +
          ": several jobs carry the run in this folder, each under a name: give sync.member, or "
          "another run.folder");
    }
    if (!by_members && look_ahead(root + "/checkpoints", kFault).is_there()) {
      throw ConfigError(root +
                        ": one job carries the run in this folder: leave sync.member out, or give "
                        "another run.folder (run.start_from takes its weights)");
    }
    if (!by_members) return "";
    return read_if_there(root + "/" + kRootConfig, kFault).value_or("");
  });
  if (text.empty()) return;
  const std::string origin = root + "/" + kRootConfig;
  const std::string changes =
      list_of(changed_settings(text, origin, config), {OnChange::kOtherRun, OnChange::kResults});
  if (changes.empty()) return;
  throw ConfigError(
      fmt::format("{}: the run that members carry there has other settings: {}; give this job "
                  "those of the run, or another run.folder (run.start_from takes its weights)",
                  origin, changes));
}

// What the leading rank shares with other jobs.
struct RunMember::Shared {
  Shared(RunMember& member, const Config& config, std::int64_t incarnation)
      : name{config.sync.member, incarnation},
        folder(config.run.folder, name.name,
               fmt::format("{}.{}.{}", name.name, host_name(), ::getpid())),
        clock([&member] { member.look(); }),
        island(folder, clock, member,
               {.name = name, .config = digest_of_config(config), .rules = rules_of(config)}),
        heart(folder, name, config.sync.silence / kBeats) {}

  // The settings of the run are those of its first member.
  std::string digest_of_config(const Config& config) {
    const std::string own = config_of_all(config);
    std::optional<std::string> text = folder.read(kRootConfig);
    if (!text) {
      const std::string file = fmt::format("{}.{}.{}", kRootConfig, name.name, name.incarnation);
      folder.write_private(file, own);
      folder.link_new(file, kRootConfig);
      folder.remove(file);
      text = folder.read(kRootConfig);
    }
    return trireme::digest_of(text.value_or(own));
  }

  const MemberName name;
  SystemIslandFolder folder;
  SystemIslandClock clock;
  IslandMember island;
  double began = 0;                               // to wait, by the clock
  bool told_wait = false;                         // since then
  std::int64_t told_settled = -1;                 // of records up to this one
  std::map<std::string, double> missing_since{};  // by file, by the clock
  HeartbeatThread heart;
};

RunMember::RunMember(Parts parts)
    : run_(parts.run),
      checkpoints_(parts.checkpoints),
      journal_(parts.journal),
      wants_stop_(std::move(parts.wants_stop)),
      every_(steps_between_meetings(run_.config).value()),
      meeting_(run_.device.context, run_.step, run_.islands.across(),
               meeting_rule(run_.config, run_.model.plan).value()),
      steps_(parts.steps) {
  const std::int64_t incarnation =
      world().all_reduce_host(leads() ? run_.folder.generation() : 0, ReduceOp::kMax);
  world().read_once([&] {
    shared_ = std::make_unique<Shared>(*this, run_.config, incarnation);
    return std::string();
  });
}

RunMember::~RunMember() = default;

// --- Orders: the leading rank follows the protocol, and all ranks carry out what it takes. ---

Json RunMember::order(const Json& command) {
  world().broadcast_text(command.dump());
  return perform(command);
}

Json RunMember::perform(const Json& command) {
  const std::string& what = command.at("do").text();
  if (what == "look") return world().agree(!wants_stop_());
  if (what == "first") return make_first(command.at("file").text());
  if (what == "next") return make_next(command);
  if (what == "take") return take_state(command);
  return {};
}

// On the other ranks. Returns the order that ends the wait.
Json RunMember::follow() {
  while (true) {
    Json command = Json::parse(world().broadcast_text(""));
    try {
      perform(command);
    } catch (const Error&) {  // the leading rank has it, too, and says so
    }
    if (command.at("do").text() == "end") return command;
  }
}

std::optional<RunMember::Leg> RunMember::next() {
  Json end = Json::object({{"do", "end"}});
  std::exception_ptr failure;
  if (leads()) {
    shared_->began = shared_->clock.seconds();
    shared_->told_wait = false;
    try {
      look();
      if (const OuterRecord* start = shared_->island.next_start()) {
        end["start"] = start_of(*start);
      } else {
        const OuterRecord& last = shared_->island.newest();
        if (last.leader == shared_->name) {
          made_last_ =
              order(Json::object({{"do", "take"}, {"state", json_of(last.state)}})).boolean();
        }
        end["made_last"] = made_last_;
      }
    } catch (const Stopped&) {
      end["stopped"] = true;
    } catch (...) {
      failure = std::current_exception();
    }
    order(end);
  } else {
    end = follow();
  }
  world().read_once([&] {
    if (failure) std::rethrow_exception(failure);
    return std::string();
  });
  leg_.reset();
  if (const Json* last = end.find("made_last")) {
    finished_ = true;
    made_last_ = last->boolean();
    world().read_once([&] {
      keep_last_state();
      return std::string();
    });
  } else if (const Json* start = end.find("start")) {
    leg_ = leg_of(*start);
    if (steps_ == 0 && leg_->first > 0) warm_steps_ = run_.config.sync.rejoin;
    steps_ = std::max(steps_, leg_->first);
    if (leads()) tell_start(*leg_, shared_->clock.seconds() - shared_->began);
  } else if (leads()) {
    journal_.note(steps_, "waited", shared_->clock.seconds() - shared_->began,
                  "no outer state came");
  }
  return leg_;
}

// On the leading rank, while it waits.
void RunMember::look() {
  if (!order(Json::object({{"do", "look"}})).boolean()) throw Stopped();
  const double waited = shared_->clock.seconds() - shared_->began;
  if (waited > kLongWait && !std::exchange(shared_->told_wait, true)) tell_wait(waited);
}

void RunMember::tell_wait(double seconds) {
  const std::string& why = shared_->island.waits_for();
  journal_.say(fmt::format("waiting for {:.0f} s for the next outer state{}", seconds,
                           why.empty() ? ", which another member makes" : ": " + why));
}

Json RunMember::start_of(const OuterRecord& record) {
  Json samples = Json::array();
  for (const SampleRange& range : shared_->island.deal().samples) {
    samples.push_back(Json::array({range.begin, range.end}));
  }
  return Json::object({{"outer", record.number},
                       {"updates", record.updates},
                       {"steps", shared_->island.deal().steps},
                       {"samples", std::move(samples)},
                       {"own", record.leader == shared_->name}});
}

RunMember::Leg RunMember::leg_of(const Json& start) const {
  Leg leg;
  leg.outer = start.at("outer").integer();
  leg.first = start.at("updates").integer() * every_;
  leg.length = std::min(every_, std::int64_t{run_.config.run.steps} - leg.first);
  leg.steps = std::max<std::int64_t>(start.at("steps").integer() * leg.length / every_, 1);
  leg.is_own = start.at("own").boolean();
  for (const Json& range : start.at("samples").items()) {
    leg.samples.push_back({range.at(0).integer(), range.at(1).integer()});
  }
  return leg;
}

void RunMember::tell_start(const Leg& leg, double waited) {
  if (shared_->told_settled < 0) {
    journal_.say(
        fmt::format("member {} begins with outer state {}, after {} of {} steps of the run",
                    shared_->name.name, leg.outer, leg.first, std::int64_t{run_.config.run.steps}));
    journal_.note(steps_, "joined", 0.0, fmt::format("outer state {}", leg.outer));
  }
  journal_.note(steps_, "outer", waited, fmt::format("{}{}", leg.outer, leg.is_own ? ", led" : ""));
  tell_uncounted();
}

void RunMember::tell_uncounted() {
  const OuterRecord& record = shared_->island.newest();
  if (std::exchange(shared_->told_settled, record.number) == record.number) return;
  for (const Settled& settled : record.settled) {
    if (settled.delivery.member.name != shared_->name.name || settled.why.empty()) continue;
    const std::string line =
        fmt::format("what this member learned from outer state {} does not count: {}",
                    settled.delivery.base, settled.why);
    journal_.say(line);
    journal_.note(steps_, "island", 0.0, line);
  }
}

void RunMember::step_done() {
  ++steps_;
  if (warm_steps_ > 0) --warm_steps_;
}

double RunMember::warm_up() const {
  const auto all = static_cast<double>(run_.config.sync.rejoin + 1);
  return warm_steps_ == 0 ? 1.0 : 1.0 - static_cast<double>(warm_steps_) / all;
}

void RunMember::deliver(std::int64_t steps, std::int64_t targets, double seconds) {
  TRIREME_CHECK(leg_, "a delivery without a state that it begins from");
  if (steps == 0) return;
  const Stopwatch stopwatch;
  Delivery delivery;
  delivery.steps = steps;
  delivery.targets = targets;
  delivery.step_seconds = seconds;
  delivery.finite = meeting_.start(0, targets);
  meeting_.arrive(0);
  const std::string file = world().read_once([&] { return shared_->island.gradient_file(); });
  if (delivery.finite) {
    std::vector<TensorSlice> slices = states(/*owned_only=*/true);
    for (const parallel::Meeting::Outer& outer : meeting_.outer()) {
      for (TensorSlice& slice : learned_slices(run_.step.stage(), outer, outer.arriving, true)) {
        slices.push_back(std::move(slice));
      }
    }
    const std::string path = path_of(file);
    CheckpointOptions options;
    options.generation = run_.folder.generation();
    write_checkpoint_to(world(), run_.runtime.recorder(), path, {}, slices, options);
    delivery.gradient.checksum = digest_of_file(path);
  }
  delivery.gradient.name = file;
  meeting_.drop(0);
  world().read_once([&] {
    run_.folder.check_still_ours();
    shared_->island.deliver(std::move(delivery));
    return std::string();
  });
  journal_.note(steps_, "delivered", stopwatch.seconds(),
                fmt::format("{}, {} steps", leg_->outer, steps));
  leg_.reset();
}

// The last state becomes the checkpoint of the whole run.
void RunMember::keep_last_state() {
  const std::string folder = "checkpoints";
  make_folders(shared_->folder.path(folder), ExitStatus::kRunFolder);
  shared_->folder.link_new(shared_->island.newest().state.name,
                           checkpoint_path(folder, run_.config.run.steps));
}

// --- What the protocol asks of the leading rank ---

std::string RunMember::first_state(const std::string& file) {
  return order(Json::object({{"do", "first"}, {"file", file}})).text();
}

bool RunMember::load(const OuterRecord& record) {
  return order(Json::object({{"do", "take"}, {"state", json_of(record.state)}})).boolean();
}

IslandWork::Made RunMember::next_state(const OuterRecord& previous,
                                       const std::vector<Settled>& settled,
                                       const std::string& file) {
  run_.folder.check_still_ours();
  Json learned = Json::array();
  for (const Settled& one : settled) {
    if (!(one.weight > 0)) continue;
    Json item = json_of(one.delivery.gradient);
    item["weight"] = one.weight;
    learned.push_back(std::move(item));
  }
  const Json result = order(Json::object({{"do", "next"},
                                          {"file", file},
                                          {"state", json_of(previous.state)},
                                          {"updates", previous.updates + 1},
                                          {"samples", previous.next_sample},
                                          {"learned", std::move(learned)}}));
  Made made;
  made.checksum = result.at("checksum").text();
  for (const Json& one : result.at("damaged").items()) made.damaged.push_back(file_of(one));
  made.absent = result.at("absent").text();
  // What has been delivered shows itself sooner or later, unless somebody removed it.
  for (const Json& one : result.at("missing").items()) {
    const TensorFile missing = file_of(one);
    made.absent = missing.name;
    const double now = shared_->clock.seconds();
    const double since = shared_->missing_since.emplace(missing.name, now).first->second;
    if (now - since > run_.config.sync.silence) made.damaged.push_back(missing);
  }
  return made;
}

// --- On all ranks ---

Json RunMember::make_first(const std::string& file) {
  meeting_.begin();
  return write_state(file, 0, 0);
}

Json RunMember::make_next(const Json& command) {
  Json result = Json::object(
      {{"checksum", ""}, {"damaged", Json::array()}, {"missing", Json::array()}, {"absent", ""}});
  const TensorFile state = file_of(command.at("state"));
  if (!hold(state)) {
    result["absent"] = state.name;
    return result;
  }
  std::vector<Checkpoint> learned;
  std::vector<double> weights;
  bool whole = true;
  for (const Json& one : command.at("learned").items()) {
    const TensorFile file = file_of(one);
    std::string fault;
    try {
      const std::optional<Checkpoint> opened = open(file.name);
      if (!opened) fault = "missing";
      if (opened && digest_of(opened->contents()) != file.checksum) fault = "damaged";
      if (fault.empty()) learned.push_back(*opened);
    } catch (const CheckpointError& error) {
      if (error.unreadable()) throw;
      fault = "damaged";
    }
    weights.push_back(one.at("weight").number());
    if (fault.empty()) continue;
    whole = false;
    result[fault].push_back(json_of(file));
  }
  if (!whole) return result;
  held_.reset();
  const std::vector<float> shares = shares_of(weights);
  add_up(learned, shares);
  add_up_states(learned, shares);
  meeting_.resume(0, 1.0);
  meeting_.finish(0);
  const std::string& file = command.at("file").text();
  std::string checksum =
      write_state(file, command.at("updates").integer(), command.at("samples").integer());
  result["checksum"] = checksum;
  return result;
}

Json RunMember::take_state(const Json& command) {
  const TensorFile state = file_of(command.at("state"));
  if (!hold(state)) return false;
  if (world().all_reduce_host(std::ssize(states(false)), ReduceOp::kMax) > 0) {
    const std::optional<Checkpoint> checkpoint = open(state.name);
    if (!checkpoint) return false;
    checkpoint->read(world(), states(/*owned_only=*/false));
  }
  meeting_.take_outer();
  return true;
}

// Reads an outer state, unless the meeting has it. False: the file is not there.
bool RunMember::hold(const TensorFile& state) {
  if (held_ == state) return true;
  const std::optional<Checkpoint> checkpoint = open(state.name);
  if (!checkpoint) return false;
  if (digest_of(checkpoint->contents()) != state.checksum) {
    throw CheckpointError(
        fmt::format("{}: is not what the record of the outer step names: somebody "
                    "has changed it",
                    checkpoint->path()));
  }
  checkpoints_.check_same(*checkpoint);
  held_.reset();
  checkpoint->read(world(), outer_slices(run_.step.stage(), meeting_, /*owned_only=*/false));
  held_ = state;
  return true;
}

std::string RunMember::path_of(const std::string& file) const {
  return run_.config.run.folder + "/" + file;
}

// Collective. What was written is read on one rank.
std::string RunMember::digest_of_file(const std::string& path) const {
  return world().read_once([&] { return digest_of(inspect_checkpoint(path)); });
}

// Opens a file of tensors; nothing where some rank does not see it yet.
std::optional<Checkpoint> RunMember::open(const std::string& file) {
  const std::string path = path_of(file);
  bool there = false;
  run_together(world(), [&] { there = look_at(path, ExitStatus::kCheckpoint).is_there(); });
  if (!world().agree(there)) return std::nullopt;
  return Checkpoint::open(world(), path);
}

// The mean by weights of what members have learned becomes what arrives. A group after the other,
// so that little memory is held besides.
void RunMember::add_up(const std::vector<Checkpoint>& learned, const std::vector<float>& shares) {
  ops::Context& ctx = run_.device.context;
  const auto& outer = meeting_.outer();
  const std::int64_t groups = world().all_reduce_host(std::ssize(outer), ReduceOp::kMax);
  for (std::int64_t i = 0; i < groups; ++i) {
    const bool here = i < std::ssize(outer);
    std::int64_t elements = 0;
    Tensor sum, term;
    Tensors parts_of_sum, parts_of_term;
    std::vector<TensorSlice> slices;
    if (here) {
      const parallel::Meeting::Outer& group = outer[static_cast<std::size_t>(i)];
      for (const Tensor& part : group.arriving) elements += part.elements();
      sum = ctx.allocate({elements}, DType::kF32, MemoryUse::kWorkspace);
      term = ctx.allocate({elements}, DType::kF32, MemoryUse::kWorkspace);
      ops::fill(ctx, term, 0.0f);  // padding, which no file has
      std::int64_t at = 0;
      for (const Tensor& part : group.arriving) {
        parts_of_sum.push_back(sum.flat_range(at, at + part.elements()));
        parts_of_term.push_back(term.flat_range(at, at + part.elements()));
        at += part.elements();
      }
      slices = learned_slices(run_.step.stage(), group, parts_of_term, /*owned_only=*/false);
    }
    std::optional<parallel::TreeSum> tree;
    if (elements > 0) tree.emplace(ctx, elements, static_cast<int>(learned.size()), sum);
    for (std::size_t k = 0; k < learned.size(); ++k) {
      learned[k].read(world(), slices);
      if (!tree) continue;
      ops::scale(ctx, term, shares[k]);
      tree->add(ctx, term);
    }
    for (std::size_t k = 0; k < parts_of_sum.size(); ++k) {
      ops::cast(ctx, parts_of_sum[k], outer[static_cast<std::size_t>(i)].arriving[k]);
    }
  }
}

// Running statistics become the means by weights.
void RunMember::add_up_states(const std::vector<Checkpoint>& learned,
                              const std::vector<float>& shares) {
  const std::vector<TensorSlice> slices = states(/*owned_only=*/false);
  if (world().all_reduce_host(std::ssize(slices), ReduceOp::kMax) == 0) return;
  ops::Context& ctx = run_.device.context;
  std::int64_t elements = 0;
  for (const TensorSlice& slice : slices) elements += slice.local.elements();
  Tensor sum, term;
  std::optional<parallel::TreeSum> tree;
  if (elements > 0) {
    sum = ctx.allocate({elements}, DType::kF32, MemoryUse::kWorkspace);
    term = ctx.allocate({elements}, DType::kF32, MemoryUse::kWorkspace);
    tree.emplace(ctx, elements, static_cast<int>(learned.size()), sum);
  }
  const auto for_each = [&](const Tensor& flat, const auto& visit) {
    std::int64_t at = 0;
    for (const TensorSlice& slice : slices) {
      const Tensor state = slice.local.reshape({slice.local.elements()});
      visit(state, flat.flat_range(at, at + state.elements()));
      at += state.elements();
    }
  };
  for (std::size_t k = 0; k < learned.size(); ++k) {
    learned[k].read(world(), slices);
    if (!tree) continue;
    for_each(term, [&](const Tensor& state, const Tensor& place) { ops::cast(ctx, state, place); });
    ops::scale(ctx, term, shares[k]);
    tree->add(ctx, term);
  }
  if (!tree) return;
  for_each(sum, [&](const Tensor& state, const Tensor& place) { ops::cast(ctx, place, state); });
}

std::vector<TensorSlice> RunMember::states(bool owned_only) const {
  std::vector<TensorSlice> slices = checkpoint_slices(run_.step.stage(), nullptr, owned_only);
  std::erase_if(slices, [](const TensorSlice& slice) { return !slice.name.starts_with(kStates); });
  return slices;
}

// Writes the outer state that the meeting has, which the weights are equal to.
std::string RunMember::write_state(const std::string& file, std::int64_t updates,
                                   std::int64_t samples) {
  const parallel::Stage& stage = run_.step.stage();
  std::vector<TensorSlice> slices = checkpoint_slices(stage, nullptr, /*owned_only=*/true);
  for (TensorSlice& slice : outer_slices(stage, meeting_, /*owned_only=*/true)) {
    if (slice.name.starts_with("outer/")) slices.push_back(std::move(slice));
  }
  const std::int64_t step = std::min(updates * every_, std::int64_t{run_.config.run.steps});
  const std::string path = path_of(file);
  checkpoints_.save_outer(path, {.step = step, .samples = samples}, slices);
  std::string checksum = digest_of_file(path);
  held_ = TensorFile{file, checksum};
  return checksum;
}

}  // namespace trireme
