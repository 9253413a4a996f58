// What became of a run that several jobs carry (io/ISLANDS.md): who was there, who led, whose work
// came late, and how many of the inner steps that were begun count. Records have no clock, so all
// times are those of the members' own events.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/outer_record.h"
#include "trireme/report/run_events.h"

namespace trireme {

// What the files of a member say.
struct MemberFacts {
  std::string name;
  std::vector<RunEvent> events = {};
  std::vector<double> step_times = {};  // when each step was recorded that is still there
  std::string host = {};                // of who holds or held its folder; empty: not known
  bool alive = false;                   // somebody holds its folder and shows signs of life
  bool left = false;                    // its heartbeat says that it has ended
  std::string state = {};               // of its folder, in words
  double last_sign = 0;                 // of life, in seconds since 1970; 0: none
};

struct IslandsFacts {
  std::vector<OuterRecord> records;  // from 0 on, without gaps
  std::vector<MemberFacts> members;
  bool done = false;  // the newest record is the run's last
  double now = 0;     // in seconds since 1970
};

enum class MemberState {
  kJoining,   // it waits for its first outer state since it was started
  kWorking,   // on inner steps
  kWaiting,   // it has delivered, and waits for the next outer state
  kDead,      // its folder is held, and nobody shows signs of life
  kLeft,      // it has ended before the run
  kFinished,  // it has seen the end of the run
};
std::string_view name_of(MemberState state);  // "joining", ...

struct MemberSpan {
  double begin = 0, end = 0;  // in seconds since 1970
  bool operator==(const MemberSpan&) const = default;
};

struct MemberDelivery {
  double time = 0;  // in seconds since 1970
  std::int64_t base = 0, steps = 0;
  // From here on as the records tell.
  std::int64_t late = 0;  // outer steps that it missed
  bool settled = false;   // some record has taken note of it
  bool counted = false;
  std::string why = {};  // it was not counted
};

struct MemberLead {
  double time = 0;  // in seconds since 1970
  std::int64_t outer = 0;
};

struct MemberSummary {
  std::string name;
  MemberState state = MemberState::kLeft;
  std::string state_text;             // with what its files say of its end
  std::string nodes;                  // "n1, n2"; empty: not known
  std::optional<std::int64_t> outer;  // the state that it went on from last
  double steps_per_second = 0;        // of the latest steps; 0: not known
  std::int64_t begun = 0;             // inner steps
  std::int64_t counted = 0;           // of these in records
  std::int64_t under_way = 0;         // of these not delivered, or not taken note of yet
  double node_seconds = 0;
  std::vector<MemberSpan> there, waited;  // while it ran; while it waited for outer states
  std::vector<MemberDelivery> deliveries;
  std::vector<MemberLead> leads;
};

struct IslandsSummary {
  std::int64_t outer = -1;   // the newest state; -1: none
  std::int64_t updates = 0;  // of the weights so far
  std::string leader;        // of the newest state
  std::vector<MemberSummary> members;
  std::int64_t begun = 0, counted = 0, under_way = 0;  // inner steps of all
  double node_seconds = 0;
  double begin = 0, end = 0;  // of all that is known, in seconds since 1970; 0: nothing is

  // Counted inner steps over those that were begun; NaN where none was.
  double goodput() const;
};

IslandsSummary summary_of(const IslandsFacts& facts);

// "96.3 %: 5200 of 5400 inner steps that were begun count, 60 are under way"; empty where none was.
std::string goodput_text(const IslandsSummary& summary);

}  // namespace trireme
