#include "trireme/report/islands_history.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/wall_clock.h"

namespace trireme {
namespace {

constexpr ExitStatus kFault = ExitStatus::kRunFolder;

}  // namespace

bool IslandsHistory::is_islands(const std::string& folder) {
  return look_ahead(folder, kFault).is_folder() && look_at(folder + "/outer", kFault).is_folder() &&
         look_at(folder + "/islands", kFault).is_folder();
}

IslandsHistory::IslandsHistory(std::string folder) : folder_(std::move(folder)) {
  update();
}

void IslandsHistory::update() {
  // The members first: what they have delivered is then in records, as far as it counts.
  read_members();
  read_records();
  read_settings();
  facts_.now = unix_seconds();
  facts_.done =
      total_updates_ && !facts_.records.empty() && facts_.records.back().updates >= *total_updates_;
  summary_ = summary_of(facts_);
}

void IslandsHistory::read_settings() {
  if (total_updates_) return;
  const auto text = read_if_there(folder_ + "/config.ini", kFault);
  if (!text) return;
  try {
    Config config = config_from_ini(*text, folder_ + "/config.ini");
    config.sync.member = "any";  // the settings of the run name none
    const std::int64_t every = steps_between_meetings(config).value();
    if (config.run.steps.epochs()) return;
    total_updates_ = (std::int64_t{config.run.steps} + every - 1) / every;
  } catch (const ConfigError&) {
    // Half written, or written by another version.
  }
}

// Names of records never change hands, so those that were read stay.
void IslandsHistory::read_records() {
  fault_.clear();
  while (true) {
    const std::string name = fmt::format("outer/outer-{:06}.json", facts_.records.size());
    const auto text = read_if_there(fmt::format("{}/{}", folder_, name), kFault);
    if (!text) return;
    try {
      facts_.records.push_back(OuterRecord::of_text(*text));
    } catch (const JsonError& error) {
      fault_ = fmt::format("{}: damaged: {}", name, error.what());
      return;
    }
  }
}

void IslandsHistory::read_members() {
  facts_.members.clear();
  const auto names = names_in(folder_ + "/islands", kFault);
  if (!names) throw RunFolderError(folder_ + ": there is no such folder");
  std::vector<std::string> members;
  std::ranges::copy_if(*names, std::back_inserter(members), is_member_name);
  // island-2 comes before island-10.
  std::ranges::sort(members, [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  for (const std::string& member : members) facts_.members.push_back(facts_of(member));
}

MemberFacts IslandsHistory::facts_of(const std::string& member) {
  MemberFacts facts{.name = member};
  const std::string folder = fmt::format("{}/islands/{}", folder_, member);
  std::unique_ptr<RunHistory>& history = histories_[member];
  try {
    if (history) {
      history->update();
    } else {
      history = std::make_unique<RunHistory>(folder);
    }
  } catch (const RunFolderError& error) {
    if (error.unreadable()) throw;
    history.reset();
    facts.state = fmt::format("damaged: {}", error.what());
    return facts;
  }
  facts.events = history->events();
  for (const StepMetrics& step : history->steps()) facts.step_times.push_back(step.time);
  facts.alive = history->state() == RunState::kRunning;
  facts.state = history->state_text();
  if (const auto& lease = history->lease()) {
    facts.host = lease->host;
    facts.last_sign =
        facts.alive ? unix_seconds() : static_cast<double>(history->lease()->heartbeat);
  }
  const auto heartbeat = read_if_there(folder + "/heartbeat", kFault);
  facts.left = heartbeat && heartbeat->find("left") != std::string::npos;
  return facts;
}

const RunHistory* IslandsHistory::history(const std::string& member) const {
  const auto found = histories_.find(member);
  return found == histories_.end() ? nullptr : found->second.get();
}

bool IslandsHistory::finished() const {
  return facts_.done && std::ranges::none_of(summary_.members, [](const MemberSummary& one) {
           using enum MemberState;
           return one.state == kJoining || one.state == kWorking || one.state == kWaiting;
         });
}

std::string IslandsHistory::state_text() const {
  std::string text = "no outer state yet";
  if (summary_.outer >= 0) {
    text = fmt::format("outer state {}, by {}, {}", summary_.outer, summary_.leader,
                       total_updates_ ? fmt::format("{} of {}", summary_.updates,
                                                    counted(*total_updates_, "update"))
                                      : counted(summary_.updates, "update"));
  }
  text += fmt::format("; {}", counted(std::ssize(summary_.members), "member"));
  using enum MemberState;
  const char* before = ": ";
  for (const MemberState state : {kWorking, kWaiting, kJoining, kDead, kLeft, kFinished}) {
    const auto count = std::ranges::count(summary_.members, state, &MemberSummary::state);
    if (count > 0)
      text += fmt::format("{}{} {}", std::exchange(before, ", "), count, name_of(state));
  }
  return text;
}

}  // namespace trireme
