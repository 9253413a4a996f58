// Members of a run that several jobs carry, the file system that they share, and their clocks, in
// one process and in virtual time. Every call of the folder is a point at which a process may be
// suspended, die, or see what the others made later than they made it.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/io/outer_record.h"

namespace trireme::testing {

// Ways to break the protocol, which the invariants must notice.
enum class Broken {
  kNothing,
  kRename,         // a file is published by rename, which replaces what others published
  kNamesComeBack,  // old records are removed, so that a late leader finds their names free
  kSettledStays,   // a settled deal stays in the record
  kDeadKeepDeals,  // deals of the dead go back, and stay theirs too
  kExistsIsLost,   // who is told that the name exists takes its own record for another's
};

struct IslandHistory {
  std::int64_t records = 0, counted = 0, dropped = 0, admissions = 0, deaths = 0, ended = 0;
  std::int64_t lies = 0, calls = 0, lost_races = 0, late = 0;
  double seconds = 0;  // virtual
};

// Runs the history of a seed until its last outer step is published. Throws InternalError if an
// invariant is broken: every delivery and every sample is counted at most once, what is published
// never changes, the chain is unbroken and each record follows from its base, and somebody goes on.
IslandHistory run_islands(std::uint64_t seed, Broken broken = Broken::kNothing);

}  // namespace trireme::testing
