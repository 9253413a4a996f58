#include "support/simulated_islands.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/io/island_member.h"

#include "support/interleavings.h"
#include "topology/simulation/fiber.h"

namespace trireme::testing {
namespace {

constexpr std::size_t kStack = std::size_t{1} << 20;
constexpr const char* kConfig = "digest";
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Crashed {};  // the process is gone
struct Ended {};    // the process was asked to end

std::string hash_of(const std::string& text) {
  return fmt::format("{:016x}", philox_key(1, text));
}

bool is_record(const std::string& name) {
  return name.starts_with("outer/outer-") && name.ends_with(".json");
}

bool is_delivery(const std::string& name) {
  return name.find("/delivery-") != std::string::npos && name.ends_with(".json");
}

// --- The file system ---

// Everything that was ever written, with the time when each reader sees it.
class SharedFiles {
 public:
  SharedFiles(std::uint64_t seed, double share_late, double most_late)
      : key_(philox_key(seed, "late")), share_late_(share_late), most_late_(most_late) {}

  struct Version {
    double time;
    std::optional<std::string> text;  // nothing: the file was removed
    int writer;
    std::uint64_t number;
  };

  void put(const std::string& name, std::optional<std::string> text, int writer, double now) {
    std::vector<Version>& all = files_[name];
    // What everybody sees replaced by now is of no use.
    while (all.size() > 1 && all[1].time + most_late_ * kWorst <= now) all.erase(all.begin());
    all.push_back({now, std::move(text), writer, ++versions_});
  }

  const std::optional<std::string>& truth(const std::string& name) const {
    static const std::optional<std::string> absent;
    const auto found = files_.find(name);
    return found == files_.end() ? absent : found->second.back().text;
  }

  std::optional<std::string> seen(const std::string& name, int reader, double now) const {
    const auto found = files_.find(name);
    return found == files_.end() ? std::nullopt : seen(found->second, reader, now);
  }

  std::vector<std::string> list(const std::string& folder, int reader, double now) const {
    std::vector<std::string> names;
    const std::string prefix = folder + "/";
    for (auto at = files_.lower_bound(prefix); at != files_.end() && at->first.starts_with(prefix);
         ++at) {
      if (!seen(at->second, reader, now)) continue;
      std::string name = at->first.substr(prefix.size());
      name = name.substr(0, name.find('/'));
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
  }

 private:
  static constexpr double kWorst = 10;  // some files are later than most_late_

  std::optional<std::string> seen(const std::vector<Version>& all, int reader, double now) const {
    for (auto version = all.rbegin(); version != all.rend(); ++version) {
      if (version->writer == reader || version->time + delay(*version, reader) <= now) {
        return version->text;
      }
    }
    return {};
  }

  double delay(const Version& version, int reader) const {
    const Philox4 draw = philox4x32(
        {static_cast<std::uint32_t>(version.number), static_cast<std::uint32_t>(reader), 0, 0},
        key_);
    if (philox_uniform(draw[0]) > share_late_) return 0;
    const double worse = philox_uniform(draw[1]) < 0.03 ? kWorst : 1;
    return most_late_ * worse * philox_uniform(draw[2]);
  }

  std::uint64_t key_, versions_ = 0;
  double share_late_, most_late_;
  std::map<std::string, std::vector<Version>> files_;
};

// --- Processes ---

class World;

// One start of a member.
struct Process : IslandFolder, IslandClock, IslandWork {
  Process(World& world, int number, MemberName name);

  std::optional<std::string> read(const std::string& file) override;
  std::vector<std::string> list(const std::string& folder) override;
  void write_private(const std::string& file, const std::string& text) override;
  void replace(const std::string& file, const std::string& text) override;
  void remove(const std::string& file) override;
  Linked link_new(const std::string& private_name, const std::string& file) override;

  double seconds() override;
  void wait(double seconds) override;

  std::string first_state(const std::string& file) override;
  Made next_state(const OuterRecord& previous, const std::vector<Settled>& settled,
                  const std::string& file) override;
  bool load(const OuterRecord& record) override;

  void body();
  void train();
  void point();
  void pause(double seconds);

  World& world;
  int number;
  MemberName name;
  double step_seconds = 1;
  double stalled_from = kNever, stalled_until = kNever;  // its heartbeat
  std::int64_t calls = 0, crash_at = -1, end_at = -1, sleep_at = -1;
  double sleep_for = 0;
  bool dies_after_sleep = false;  // another incarnation has begun meanwhile
  bool hangs = false;             // it sleeps for ever, and its heart beats
  bool doomed = false, over = false;
  std::string told_exists;  // for Broken::kExistsIsLost
  std::unique_ptr<Fiber> fiber;
};

// The heartbeat of a process, which is written beside what the process does.
struct BeatFolder : IslandFolder {
  explicit BeatFolder(Process& of) : process(of) {}
  std::optional<std::string> read(const std::string&) override { return {}; }
  std::vector<std::string> list(const std::string&) override { return {}; }
  void write_private(const std::string&, const std::string&) override {}
  void replace(const std::string& file, const std::string& text) override;
  void remove(const std::string&) override {}
  Linked link_new(const std::string&, const std::string&) override { return Linked::kGone; }
  Process& process;
};

class World {
 public:
  World(std::uint64_t seed, Broken broken);
  IslandHistory run();

  double now() const { return now_; }
  SharedFiles& files() { return files_; }
  std::mt19937_64& random() { return random_; }
  double uniform() { return std::uniform_real_distribution<>(0, 1)(random_); }
  bool draws(double chance) { return uniform() < chance; }
  bool faults_go_on() const { return now_ < faults_until_; }

  void wake(Process& process, double time);
  void published(const std::string& name, const std::string& text);
  void wrote(const std::string& name, const std::string& text) { written_[name] = text; }
  void check_removal(const std::string& name) const;

  Broken broken_;
  IslandRules rules_;
  IslandHistory history_;
  std::exception_ptr fault_;                   // of a process
  std::int64_t last_ = 0;                      // the outer step with which the history ends
  double cut_from_ = kNever, cut_until_ = 0;   // the file system answers nobody
  double lie_ = 0, partial_ = 0, damage_ = 0;  // chances

 private:
  struct Event {
    double time;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.order) < std::tie(time, order);
    }
  };
  void at(double time, std::function<void()> action) {
    events_.push({time, ++orders_, std::move(action)});
  }
  void start(int member);
  void beat(Process& process, const std::shared_ptr<Heartbeat>& heart);
  void resume(Process& process);

  std::mt19937_64 random_;
  SharedFiles files_;
  double now_ = 0, faults_until_ = 0, bound_ = 0, crash_chance_ = 0;
  int members_ = 1, stable_ = 1;
  std::vector<std::int64_t> incarnations_;
  std::vector<double> speeds_;
  std::priority_queue<Event> events_;
  std::uint64_t orders_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<BeatFolder>> beats_;
  std::map<std::string, std::vector<std::string>> published_;  // every text that had the name
  std::map<std::string, std::string> written_;                 // tensors, by name
  std::int64_t newest_ = -1;
  std::vector<OuterRecord> records_;  // as they were published
};

Process::Process(World& of, int id, MemberName called)
    : world(of), number(id), name(std::move(called)) {}

void Process::pause(double seconds) {
  double until = world.now() + seconds;
  if (until >= world.cut_from_ && until < world.cut_until_) until = world.cut_until_;
  world.wake(*this, until);
  fiber->suspend();
  if (doomed) throw Crashed{};
}

// Each call of the folder passes here before it has its effect, and once more after it.
void Process::point() {
  ++calls;
  ++world.history_.calls;
  double seconds = 0.02 * world.uniform();
  if (calls == sleep_at && world.faults_go_on()) seconds += hangs ? 1e9 : sleep_for;
  pause(seconds);
  if (calls >= sleep_at && sleep_at >= 0 && dies_after_sleep && crash_at < 0) crash_at = calls + 40;
  if (calls == crash_at && (world.faults_go_on() || dies_after_sleep)) throw Crashed{};
  if (calls == end_at && world.faults_go_on()) throw Ended{};
}

double Process::seconds() {
  return world.now() + 1000.0 * number;  // no two clocks have the same origin
}

void Process::wait(double seconds) {
  pause(seconds);
}

std::optional<std::string> Process::read(const std::string& file) {
  point();
  auto text = world.files().seen(file, number, world.now());
  if (file == told_exists) {  // what follows the answer that the name exists
    told_exists.clear();
    if (world.broken_ == Broken::kExistsIsLost && text) *text += "another's";
  }
  return text;
}

std::vector<std::string> Process::list(const std::string& folder) {
  point();
  return world.files().list(folder, number, world.now() - 10 * world.uniform());
}

void Process::write_private(const std::string& file, const std::string& text) {
  point();
  world.files().put(file, text, number, world.now());
  world.wrote(file, text);
  point();
}

void Process::replace(const std::string& file, const std::string& text) {
  point();
  world.files().put(file, text, number, world.now());
}

void Process::remove(const std::string& file) {
  point();
  if (!world.files().truth(file)) return;
  world.check_removal(file);
  world.files().put(file, std::nullopt, number, world.now());
}

IslandFolder::Linked Process::link_new(const std::string& private_name, const std::string& file) {
  point();
  const std::optional<std::string> text = world.files().truth(private_name);
  if (!text) return Linked::kGone;
  const bool taken = world.files().truth(file).has_value();
  if (!taken || world.broken_ == Broken::kRename) {
    world.files().put(file, text, number, world.now());
    world.published(file, *text);
  }
  point();
  if (world.broken_ == Broken::kRename) return Linked::kNew;
  const bool lie = !taken && world.draws(world.lie_);
  if (lie) ++world.history_.lies;
  if (taken) ++world.history_.lost_races;
  if (!taken && !lie) return Linked::kNew;
  told_exists = file;
  return Linked::kExists;
}

void BeatFolder::replace(const std::string& file, const std::string& text) {
  process.world.files().put(file, text, process.number, process.world.now());
}

// --- Tensors: a state is a text that tells what was added to which state ---

std::string state_after(const std::string& previous, const std::vector<Settled>& settled) {
  std::string text = hash_of(previous);
  for (const Settled& one : settled) {
    if (one.weight > 0) text += fmt::format(" {}*{}", one.weight, one.delivery.gradient.checksum);
  }
  return text;
}

std::string Process::first_state(const std::string& file) {
  pause(2 * world.uniform());
  write_private(file, "first");
  return hash_of("first");
}

IslandWork::Made Process::next_state(const OuterRecord& previous,
                                     const std::vector<Settled>& settled, const std::string& file) {
  const auto before = read(previous.state.name);
  if (!before) return {};
  expect(hash_of(*before) == previous.state.checksum, "a leader reads another state");
  Made made;
  for (const Settled& one : settled) {
    if (one.weight <= 0) continue;
    const auto gradient = read(one.delivery.gradient.name);
    if (!gradient) return made;
    if (hash_of(*gradient) != one.delivery.gradient.checksum) {
      made.damaged.push_back(one.delivery.gradient);
    }
  }
  if (!made.damaged.empty()) return made;
  pause(2 * world.uniform());
  const std::string text = state_after(*before, settled);
  write_private(file, text);
  made.checksum = hash_of(text);
  return made;
}

bool Process::load(const OuterRecord& record) {
  const auto text = read(record.state.name);
  if (!text) return false;
  expect(hash_of(*text) == record.state.checksum, "a member reads another state");
  return true;
}

void Process::body() {
  try {
    train();
  } catch (const Crashed&) {
  } catch (const Ended&) {
    BeatFolder folder(*this);
    Heartbeat(folder, name).leave();
  } catch (...) {
    world.fault_ = std::current_exception();
  }
  over = true;
}

void Process::train() {
  IslandMember::Options options{name, kConfig, world.rules_, &next_record};
  if (world.broken_ == Broken::kSettledStays) {
    options.decide = [](const OuterRecord& previous, const std::vector<MemberSeen>& seen,
                        double waited, const IslandRules& rules) {
      NextRecord next = next_record(previous, seen, waited, rules);
      if (!next.record) return next;
      for (OuterMember& member : next.record->members) {
        const OuterMember* const before = previous.find(member.member.name);
        if (before == nullptr) continue;
        for (const Deal& deal : before->deals) {
          if (member.deal_of(deal.base) == nullptr) member.deals.push_back(deal);
        }
        std::ranges::sort(member.deals, {}, &Deal::base);
      }
      return next;
    };
  }
  if (world.broken_ == Broken::kDeadKeepDeals) {
    options.decide = [](const OuterRecord& previous, const std::vector<MemberSeen>& seen,
                        double waited, const IslandRules& rules) {
      NextRecord next = next_record(previous, seen, waited, rules);
      if (!next.record) return next;
      for (const OuterMember& before : previous.members) {
        if (next.record->find(before.member.name) == nullptr) {
          next.record->members.push_back(before);
        }
      }
      return next;
    };
  }
  IslandMember member(*this, *this, *this, std::move(options));
  while (true) {
    const OuterRecord& start = *member.next_start();
    if (start.number >= world.last_) return;
    const Deal& deal = member.deal();
    Delivery delivery;
    delivery.steps = deal.steps;
    if (deal.steps > 1 && world.draws(world.partial_)) delivery.steps -= 1;
    pause(static_cast<double>(delivery.steps) * step_seconds * (0.8 + 0.4 * world.uniform()));
    delivery.targets = delivery.steps * 100 + number;
    delivery.finite = !world.draws(world.damage_);
    delivery.step_seconds = step_seconds;
    const std::string gradient = fmt::format("{} {} {}", name.name, name.incarnation, start.number);
    delivery.gradient = {member.gradient_file(), hash_of(gradient)};
    write_private(delivery.gradient.name, world.draws(world.damage_) ? "damaged" : gradient);
    member.deliver(std::move(delivery));
  }
}

// --- The world ---

World::World(std::uint64_t seed, Broken broken)
    : broken_(broken),
      random_(seed * 7919 + 17),
      files_(seed, std::array{0.0, 0.3, 0.8}[seed % 3], std::array{1.0, 5.0, 20.0}[seed / 3 % 3]) {
  members_ = 1 + static_cast<int>(random_() % 5);
  last_ = 3 + static_cast<std::int64_t>(random_() % 5);
  stable_ = 1 + static_cast<int>(random_() % static_cast<unsigned>(members_));
  rules_.steps = 1 + static_cast<std::int64_t>(random_() % 4);
  rules_.samples = 1 + static_cast<std::int64_t>(random_() % 8);
  rules_.even_time = draws(0.3);
  rules_.quorum = draws(0.5) ? 1 : 1 + static_cast<int>(random_() % static_cast<unsigned>(stable_));
  rules_.patience = draws(0.3) ? 10 : 80;
  rules_.stale = std::array{0.5, 0.0, 1.0}[random_() % 3];
  rules_.silence = 30;
  rules_.poll = 4;
  faults_until_ = 50 + 400 * uniform();
  crash_chance_ = std::array{0.0, 0.5, 0.9}[random_() % 3];
  lie_ = std::array{0.0, 0.2, 0.7}[random_() % 3];
  partial_ = draws(0.3) ? 0.3 : 0;
  damage_ = draws(0.2) ? 0.1 : 0;
  if (draws(0.2)) {
    cut_from_ = faults_until_ * uniform();
    cut_until_ = cut_from_ + 200 * uniform();
  }
  incarnations_.resize(static_cast<std::size_t>(members_));
  double slowest = 0;
  for (int i = 0; i < members_; ++i) {
    speeds_.push_back(2 + 8 * uniform() * (draws(0.2) ? 4 : 1));
    slowest = std::max(slowest, speeds_.back());
    const double begin = draws(0.5) ? 3 * uniform() : faults_until_ * uniform();
    at(begin, [this, i] { start(i); });
  }
  // From when on nothing fails any more, and how long an outer step can take then: the work, the
  // patience, a death that must be noticed, files that show themselves late.
  const double quiet = faults_until_ + 1'000;
  const double share = rules_.even_time ? 4 : 1;  // of the steps, for a fast member
  const double work = 1.2 * share * static_cast<double>(rules_.steps) * slowest;
  bound_ = quiet + static_cast<double>(last_ + 1) * (work + rules_.patience + rules_.silence + 60);
}

void World::start(int member) {
  const auto index = static_cast<std::size_t>(member);
  const int number = static_cast<int>(processes_.size());
  processes_.push_back(std::make_unique<Process>(
      *this, number, MemberName{fmt::format("m{}", member), ++incarnations_[index]}));
  Process& process = *processes_.back();
  process.step_seconds = speeds_[index];
  // Some return after a crash, the stable ones always.
  const bool returns = member < stable_ || draws(0.7);
  if (faults_go_on()) {
    const auto call = [&] { return static_cast<std::int64_t>(1 + random_() % 250); };
    if (draws(crash_chance_)) (draws(0.8) ? process.crash_at : process.end_at) = call();
    if (draws(0.3)) {
      process.stalled_from = now_ + faults_until_ * uniform();
      process.stalled_until = std::min(process.stalled_from + 150 * uniform(), faults_until_ + 150);
    }
    if (draws(0.3)) {
      process.sleep_at = call();
      process.sleep_for = 400 * uniform() * uniform();
      if (draws(0.4)) {  // the scheduler takes the node for lost and starts the job again
        process.dies_after_sleep = true;
      } else if (member >= stable_ && draws(0.3)) {
        process.hangs = true;
      }
    }
  }
  beats_.push_back(std::make_unique<BeatFolder>(process));
  beat(process, std::make_shared<Heartbeat>(*beats_.back(), process.name));
  process.fiber = std::make_unique<Fiber>(kStack, [&process] { process.body(); });
  resume(process);
  // A process whose place is taken by another one is looked after by nobody.
  const double restart = 5 + 150 * uniform() * uniform();
  if (returns) {
    struct Look {
      World* world;
      Process* process;
      int member;
      double restart;
      void operator()() const {
        const bool lost = process->dies_after_sleep && process->sleep_at >= 0 &&
                          process->calls >= process->sleep_at;
        if (process->over || lost) {
          if (process->doomed || world->newest_ >= world->last_) return;
          world->at(world->now_ + restart, [w = world, m = member] { w->start(m); });
        } else {
          world->at(world->now_ + 5, *this);
        }
      }
    };
    at(now_ + 5, Look{this, &process, member, restart});
  }
}

void World::beat(Process& process, const std::shared_ptr<Heartbeat>& heart) {
  if (process.over) return;
  const bool stalled = now_ >= process.stalled_from && now_ < process.stalled_until;
  const bool cut = now_ >= cut_from_ && now_ < cut_until_;
  if (!stalled && !cut) heart->beat();
  at(now_ + 6, [this, &process, heart] { beat(process, heart); });
}

void World::wake(Process& process, double time) {
  at(time, [this, &process] { resume(process); });
}

void World::resume(Process& process) {
  if (!process.over) process.fiber->resume();
}

void World::published(const std::string& name, const std::string& text) {
  if (!is_record(name) && !is_delivery(name)) return;
  published_[name].push_back(text);
  if (!is_record(name)) return;
  const OuterRecord record = OuterRecord::of_text(text);
  const std::int64_t number = record.number;
  newest_ = std::max(newest_, number);
  records_.push_back(record);
  if (broken_ == Broken::kNamesComeBack && number >= 2) {
    files_.put(fmt::format("outer/outer-{:06}.json", number - 2), std::nullopt, -1, now_);
  }
}

// --- The invariants ---

// Nobody removes the tensors of the last two states, or what the next record may count.
void World::check_removal(const std::string& name) const {
  const std::size_t count = records_.size();
  for (std::size_t i = count < 2 ? 0 : count - 2; i < count; ++i) {
    expect(records_[i].state.name != name, name + " is removed and in use");
  }
  if (records_.empty()) return;
  for (const OuterMember& member : records_.back().members) {
    for (const Deal& deal : member.deals) {
      const std::string delivery =
          fmt::format("islands/{}/delivery-{:06}.json", member.member.name, deal.base);
      const auto& text = files_.truth(delivery);
      if (!text) continue;
      expect(delivery != name && Delivery::of_text(*text).gradient.name != name,
             name + " is removed and was not counted");
    }
  }
}

// Follows the chain of records with code of its own.
class ChainCheck {
 public:
  ChainCheck(const std::map<std::string, std::vector<std::string>>& published,
             const std::map<std::string, std::string>& written, const IslandRules& rules,
             IslandHistory& history)
      : published_(published), written_(written), rules_(rules), history_(history) {}

  void run(std::int64_t newest) {
    for (const auto& [name, texts] : published_) {
      if (is_record(name)) expect(texts.size() == 1, name + " was published twice");
    }
    for (std::int64_t number = 0; number <= newest; ++number) {
      const auto found = published_.find(fmt::format("outer/outer-{:06}.json", number));
      expect(found != published_.end(), fmt::format("record {} is missing", number));
      const OuterRecord record = OuterRecord::of_text(found->second.front());
      expect(record.text() == found->second.front(), "a record reads back as another");
      expect(record.number == number && record.config == kConfig, "a record of another place");
      if (number > 0) follow(record);
      check_samples(record);
      check_state(record);
      records_.push_back(record);
    }
    history_.records = newest + 1;
  }

 private:
  void follow(const OuterRecord& record) {
    const OuterRecord& previous = records_.back();
    expect(!record.ancestors.empty() && record.ancestors[0].number == previous.number &&
               record.ancestors[0].checksum == previous.checksum(),
           fmt::format("record {} does not follow from its base", record.number));
    std::set<std::string> delivered;
    bool changes = false;
    for (const Settled& one : record.settled) {
      delivered.insert(one.delivery.member.name);
      changes = changes || one.weight > 0;
      check_settled(previous, one);
    }
    for (const OuterMember& member : previous.members) {
      if (record.find(member.member.name) == nullptr) ++history_.deaths;
    }
    expect(record.updates == previous.updates + (changes ? 1 : 0), "updates are miscounted");
    if (record.settled.empty()) {
      ++history_.admissions;
    } else {
      expect(static_cast<int>(delivered.size()) >= rules_.quorum, "a step below the quorum");
    }
  }

  void check_settled(const OuterRecord& previous, const Settled& one) {
    const Delivery& delivery = one.delivery;
    const std::string name = fmt::format("{} from {}", delivery.member.name, delivery.base);
    const OuterMember* const member = previous.find(delivery.member.name);
    const Deal* const deal = member == nullptr ? nullptr : member->deal_of(delivery.base);
    expect(deal != nullptr, name + " was settled without a deal");
    expect(settled_.insert({delivery.member.name, delivery.base}).second,
           name + " was settled twice");
    SampleRanges samples = deal->samples;
    for (const SampleRange& range : one.samples) used_.push_back(range);
    if (!(one.weight > 0)) {
      ++history_.dropped;
      return;
    }
    ++history_.counted;
    expect(one.samples == take_front(samples, delivery.steps * rules_.samples),
           name + " used other samples");
    const auto texts = published_.find(
        fmt::format("islands/{}/delivery-{:06}.json", delivery.member.name, delivery.base));
    expect(texts != published_.end() && std::ranges::count(texts->second, delivery.text()) > 0,
           name + " was counted and not delivered");
    const auto& base = records_[static_cast<std::size_t>(delivery.base)];
    expect(delivery.base_checksum == base.checksum(), name + " begins from elsewhere");
    if (delivery.base != previous.number) ++history_.late;
    const double age = static_cast<double>(previous.updates - base.updates);
    expect(one.weight == static_cast<double>(delivery.targets) * std::pow(rules_.stale, age),
           name + " has another weight");
  }

  // Every sample was used, or is dealt to one member, or went back, or was never dealt.
  void check_samples(const OuterRecord& record) const {
    SampleRanges all = used_;
    all.insert(all.end(), record.back.begin(), record.back.end());
    for (const OuterMember& member : record.members) {
      for (const Deal& deal : member.deals) {
        expect(count_of(deal.samples) == deal.steps * rules_.samples, "a deal of another size");
        all.insert(all.end(), deal.samples.begin(), deal.samples.end());
      }
    }
    std::ranges::sort(all, {}, &SampleRange::begin);
    std::int64_t next = 0;
    for (const SampleRange& range : all) {
      expect(range.begin >= next,
             fmt::format("sample {} has two owners in record {}", range.begin, record.number));
      expect(range.begin == next,
             fmt::format("sample {} is lost in record {}", next, record.number));
      next = range.end;
    }
    expect(next == record.next_sample, "samples are lost at the end");
  }

  void check_state(const OuterRecord& record) {
    const auto state = written_.find(record.state.name);
    expect(state != written_.end(), "a record without a state");
    expect(hash_of(state->second) == record.state.checksum, "a published state has changed");
    if (record.number == 0) {
      expect(state->second == "first", "another first state");
    } else if (record.updates == records_.back().updates) {
      expect(record.state == records_.back().state, "a state changed without an update");
    } else {
      const std::string& before = written_.at(records_.back().state.name);
      expect(state->second == state_after(before, record.settled), "a state counts something else");
    }
  }

  const std::map<std::string, std::vector<std::string>>& published_;
  const std::map<std::string, std::string>& written_;
  const IslandRules& rules_;
  IslandHistory& history_;
  std::vector<OuterRecord> records_;
  std::set<std::pair<std::string, std::int64_t>> settled_;
  SampleRanges used_;
};

IslandHistory World::run() {
  while (newest_ < last_ && !fault_ && !events_.empty() && events_.top().time <= bound_) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.action();
  }
  const bool reached = newest_ >= last_;
  for (const auto& process : processes_) {
    process->doomed = true;
    if (process->over) ++history_.ended;
    if (!process->over) process->fiber->resume();
  }
  if (fault_) std::rethrow_exception(fault_);
  history_.seconds = now_;
  ChainCheck(published_, written_, rules_, history_).run(newest_);
  expect(reached,
         fmt::format("nobody goes on: outer step {} of {} after {:.0f} s", newest_, last_, bound_));
  return history_;
}

}  // namespace

IslandHistory run_islands(std::uint64_t seed, Broken broken) {
  return World(seed, broken).run();
}

}  // namespace trireme::testing
