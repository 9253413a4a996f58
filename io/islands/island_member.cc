#include "trireme/io/island_member.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme {
namespace {

constexpr const char* kLeader = "outer/leader";
constexpr double kRenewals = 8;  // of the leader's lease, within a silence
// A leader that lives and has not renewed its lease for so many silences hangs: it needs far less
// to make a state.
constexpr double kHangs = 5;

std::string record_name(std::int64_t number) {
  return fmt::format("outer/outer-{:06}.json", number);
}

std::string delivery_name(const std::string& member, std::int64_t base) {
  return fmt::format("islands/{}/delivery-{:06}.json", member, base);
}

// The number in the name of a file "KIND-NUMBER...."; nothing in others.
std::optional<std::int64_t> number_in(std::string_view name, std::string_view kind) {
  if (!name.starts_with(kind)) return {};
  name.remove_prefix(kind.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {};
  return number;
}

// The content of the leader's lease: which outer step it makes.
struct LeaderLease {
  std::int64_t number = -1;
  MemberName leader;
  bool operator==(const LeaderLease&) const = default;

  std::string text(std::int64_t renewals) const {
    return fmt::format("{} {} {} {}\n", number, leader.name, leader.incarnation, renewals);
  }
  static std::optional<LeaderLease> of_text(const std::string& text) {
    LeaderLease lease;
    std::istringstream words(text);
    if (!(words >> lease.number >> lease.leader.name >> lease.leader.incarnation)) return {};
    if (!is_member_name(lease.leader.name)) return {};
    return lease;
  }
};

}  // namespace

IslandMember::IslandMember(IslandFolder& folder, IslandClock& clock, IslandWork& work,
                           Options options)
    : folder_(folder), clock_(clock), work_(work), options_(std::move(options)) {
  if (!is_member_name(options_.name.name)) {
    throw RunFolderError(
        fmt::format("{}: no name of an island, which has letters, digits, -, _ and . alone",
                    options_.name.name));
  }
}

const OuterRecord* IslandMember::next_start() {
  waited_since_ = clock_.seconds();
  while (true) {
    advance();
    if (newest_ && options_.rules.is_last(*newest_)) return nullptr;
    if (start()) return &*start_;
    const std::int64_t before = newest_ ? newest_->number : -1;
    if (leads()) newest_ ? lead() : found();
    if ((newest_ ? newest_->number : -1) == before) clock_.wait(options_.rules.poll);
  }
}

const Deal& IslandMember::deal() const {
  TRIREME_CHECK(start_, "a deal before the first outer state");
  return *start_->find(options_.name.name)->deal_of(start_->number);
}

std::string IslandMember::gradient_file() const {
  TRIREME_CHECK(start_, "a gradient before the first outer state");
  return fmt::format("islands/{}/gradient-{:06}.{}.h5", options_.name.name, start_->number,
                     options_.name.incarnation);
}

void IslandMember::deliver(Delivery delivery) {
  TRIREME_CHECK(start_, "a delivery before the first outer state");
  delivery.member = options_.name;
  delivery.base = start_->number;
  delivery.base_checksum = start_->checksum();
  if (!publish(delivery_name(options_.name.name, delivery.base), delivery.text())) {
    folder_.remove(delivery.gradient.name);
  }
}

// --- The chain of records ---

std::optional<std::string> IslandMember::read_record(std::int64_t number) {
  return folder_.read(record_name(number));
}

// Goes to the newest record that is visible. Records are never removed, so all before one that is
// there are, and longer and longer strides find the last.
void IslandMember::advance() {
  std::int64_t number = newest_ ? newest_->number : -1, stride = 1;
  std::optional<std::string> text;
  while (true) {
    if (auto next = read_record(number + stride)) {
      text = std::move(next);
      number += stride;
      stride *= 2;
    } else if (stride > 1) {
      stride = 1;
    } else {
      break;
    }
  }
  if (!text) return;
  OuterRecord record;
  try {
    record = OuterRecord::of_text(*text);
  } catch (const JsonError& error) {
    throw RunFolderError(fmt::format("{}: not the record of an outer step: {}",
                                     folder_.said(record_name(number)), error.what()));
  }
  if (record.config != options_.config) {
    throw RunFolderError(fmt::format(
        "{}: the run in this folder has another configuration ({}) than this job ({}): give the "
        "job another folder, or the configuration of the run",
        folder_.said(record_name(number)), record.config, options_.config));
  }
  if (newest_) {
    const auto same =
        std::ranges::find(record.ancestors, newest_->number, &OuterRecord::Ancestor::number);
    if (same != record.ancestors.end() && same->checksum != newest_->checksum()) {
      throw RunFolderError(
          fmt::format("{}: does not follow from {}; somebody has changed the folder",
                      folder_.said(record_name(number)), record_name(newest_->number)));
    }
  }
  take(record);
}

void IslandMember::take(const OuterRecord& record) {
  newest_ = record;
  waited_since_ = clock_.seconds();
  seen_.clear();
  damaged_.clear();
  waits_for_.clear();
}

// Whether this member can work from the newest state; loads it.
bool IslandMember::start() {
  if (!newest_ || newest_->number <= settled_with_) return false;
  const OuterMember* const me = newest_->find(options_.name.name);
  if (me == nullptr || me->deal_of(newest_->number) == nullptr) return false;  // not admitted yet
  if (folder_.read(delivery_name(options_.name.name, newest_->number))) {
    settled_with_ = newest_->number;  // an earlier incarnation has delivered
    return false;
  }
  if (!work_.load(*newest_)) {
    waits_for_ = words_on_absent(newest_->state.name);
    return false;
  }
  settled_with_ = newest_->number;
  start_ = newest_;
  remove_own_old();
  return true;
}

// --- Leading ---

HeartbeatWatch& IslandMember::heart_of(const std::string& name) {
  HeartbeatWatch& watched = hearts_[name];
  watched.look(folder_.read(fmt::format("islands/{}/heartbeat", name)), clock_.seconds(),
               options_.rules.silence);
  return watched;
}

// Takes the lease of the step after newest_ where nobody alive has it. The lease keeps two members
// from making the same state; it decides nothing, and several may hold it for a moment.
bool IslandMember::leads() {
  const double now = clock_.seconds(), silence = options_.rules.silence;
  const LeaderLease mine{newest_ ? newest_->number + 1 : 0, options_.name};
  const std::optional<std::string> text = folder_.read(kLeader);
  const auto held = text ? LeaderLease::of_text(*text) : std::nullopt;
  const bool is_mine = held == mine;
  if (held && held->number > mine.number) return false;  // a record will show itself
  if (held && held->number == mine.number && !is_mine) {
    const HeartbeatWatch& holder = heart_of(held->leader.name);
    const bool restarted = holder.incarnation() > held->leader.incarnation;
    lease_.look(text, now, silence);
    const bool hangs = lease_.silent() >= kHangs * silence;
    if (!restarted && !hangs && holder.living(silence)) return false;
  }
  if (is_mine && now - renewed_ < silence / kRenewals) return true;
  folder_.replace(kLeader, mine.text(++renewals_));
  renewed_ = now;
  return is_mine;  // else from the next look on, if nobody has replaced it
}

void IslandMember::found() {
  const std::string file = fmt::format("outer/state-{:06}.{}.h5", 0, mark());
  OuterRecord record = first_record(options_.config, options_.name, options_.rules);
  record.leader = options_.name;
  record.state = {file, work_.first_state(file)};
  if (!publish_record(record)) folder_.remove(file);
}

void IslandMember::lead() {
  NextRecord next = options_.decide(*newest_, look_at_members(), clock_.seconds() - waited_since_,
                                    options_.rules);
  waits_for_ = next.waits_for;
  if (next.record) make_next(std::move(*next.record));
}

std::vector<MemberSeen> IslandMember::look_at_members() {
  const double silence = options_.rules.silence;
  const MemberName& mine = options_.name;
  std::vector<MemberSeen> all;
  for (const OuterMember& member : newest_->members) {
    MemberSeen seen{member.member, true, {}, {}};
    if (member.member.name == mine.name) {
      seen.member = mine;
    } else {
      const HeartbeatWatch& heart = heart_of(member.member.name);
      seen.living = heart.living(silence);
      seen.member.incarnation = std::max(seen.member.incarnation, heart.incarnation());
    }
    see_deliveries(member, seen);
    all.push_back(std::move(seen));
  }
  if (newest_->find(mine.name) == nullptr) all.push_back({mine, true, {}, {}});
  for (const std::string& name : folder_.list("islands")) {
    if (!is_member_name(name) || name == mine.name || newest_->find(name) != nullptr) continue;
    // Folders of the dead stay, so that of a stranger a beat must be seen.
    const HeartbeatWatch& heart = heart_of(name);
    if (!heart.seen_to_beat() || !heart.living(silence)) continue;
    all.push_back({{name, heart.incarnation()}, true, {}, {}});
  }
  return all;
}

// Adds what is visible of a member's open deals. Deliveries never change, so each is read once.
void IslandMember::see_deliveries(const OuterMember& of, MemberSeen& seen) {
  const std::string& name = of.member.name;
  for (const Deal& deal : of.deals) {
    auto found = seen_.find({name, deal.base});
    if (found == seen_.end()) {
      const auto text = folder_.read(delivery_name(name, deal.base));
      if (!text) continue;
      Delivery delivery;
      try {
        delivery = Delivery::of_text(*text);
      } catch (const JsonError&) {  // it is settled as one that begins from nowhere
      }
      const bool fits = delivery.member.name == name && delivery.base == deal.base &&
                        delivery.gradient.name.starts_with(fmt::format("islands/{}/", name)) &&
                        delivery.gradient.name.find("..") == std::string::npos;
      if (!fits) {
        delivery = {};
        delivery.member = of.member;
        delivery.base = deal.base;
      }
      found = seen_.emplace(std::pair(name, deal.base), std::move(delivery)).first;
    }
    if (std::ranges::count(damaged_, found->second.gradient) > 0) seen.damaged.push_back(deal.base);
    seen.delivered.push_back(found->second);
  }
}

std::string IslandMember::words_on_absent(const std::string& file) const {
  return folder_.said(file) + ", which a record or a delivery names, is not there";
}

// Makes the state of a record and publishes it. The file has a name that nobody has used, so that
// what may be published already is never written again.
void IslandMember::make_next(OuterRecord record) {
  const OuterRecord previous = *newest_;
  record.leader = options_.name;
  record.state = previous.state;
  const bool changes = record.updates != previous.updates;
  if (changes) {
    record.state.name = fmt::format("outer/state-{:06}.{}.h5", record.number, mark());
    IslandWork::Made made = work_.next_state(previous, record.settled, record.state.name);
    damaged_.insert(damaged_.end(), made.damaged.begin(), made.damaged.end());
    record.state.checksum = std::move(made.checksum);
    if (record.state.checksum.empty()) {
      if (!made.absent.empty()) waits_for_ = words_on_absent(made.absent);
      folder_.remove(record.state.name);
      return;
    }
  }
  if (publish_record(record)) {
    remove_old(record, previous);
  } else if (changes) {
    folder_.remove(record.state.name);
  }
}

bool IslandMember::publish_record(const OuterRecord& record) {
  if (!publish(record_name(record.number), record.text())) return false;
  take(record);
  return true;
}

// --- Files ---

std::string IslandMember::mark() {
  return fmt::format("{}.{}.{}", options_.name.name, options_.name.incarnation, ++attempts_);
}

// Gives a text a name for good. Returns whether this text is what the name stands for. A call that
// was told that the name exists may itself have made it, so what is published decides, not what the
// call was told.
bool IslandMember::publish(const std::string& name, const std::string& text) {
  const std::string own = fmt::format("{}.{}", name, mark());
  folder_.write_private(own, text);
  while (true) {
    const IslandFolder::Linked linked = folder_.link_new(own, name);
    std::optional<std::string> published;
    if (linked == IslandFolder::Linked::kNew) {
      published = text;
    } else {
      published = folder_.read(name);
    }
    if (published) {
      folder_.remove(own);
      return *published == text;
    }
    if (linked == IslandFolder::Linked::kGone) folder_.write_private(own, text);
    clock_.wait(options_.rules.poll);
  }
}

// Removes the tensors of states before the last but one, and of what was settled before this
// record. Whoever makes a state that needs them is late, and will be told that it exists. Records
// stay, so that their names are never free again.
void IslandMember::remove_old(const OuterRecord& published, const OuterRecord& previous) {
  for (const std::string& file : folder_.list("outer")) {
    const std::string name = "outer/" + file;
    auto number = number_in(file, "state-");
    if (!number && file.find(".json.") != std::string::npos) number = number_in(file, "outer-");
    if (!number || *number > published.number - 2) continue;
    if (name != published.state.name && name != previous.state.name) folder_.remove(name);
  }
  for (const Settled& settled : previous.settled) {
    const Delivery& delivery = settled.delivery;
    folder_.remove(delivery_name(delivery.member.name, delivery.base));
    if (!delivery.gradient.name.empty()) folder_.remove(delivery.gradient.name);
  }
}

// Removes what is left of deliveries that no later record can count.
void IslandMember::remove_own_old() {
  const std::string folder = "islands/" + options_.name.name;
  for (const std::string& file : folder_.list(folder)) {
    auto base = number_in(file, "delivery-");
    if (!base) base = number_in(file, "gradient-");
    if (!base || *base > newest_->number - 2) continue;
    if (newest_->find(options_.name.name)->deal_of(*base) == nullptr) {
      folder_.remove(folder + "/" + file);
    }
  }
}

}  // namespace trireme
