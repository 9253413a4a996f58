// What the folder of a run that several jobs carry says (io/ISLANDS.md). It only reads the files of
// the run and of its members, as RunHistory does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/report/islands_summary.h"
#include "trireme/report/run_history.h"

namespace trireme {

class IslandsHistory {
 public:
  // Returns whether a folder is that of a run whose members have folders of their own in it.
  static bool is_islands(const std::string& folder);

  // Reads the folder. Throws RunFolderError if it cannot be read.
  explicit IslandsHistory(std::string folder);
  // Reads what the members have written since the last update. Throws as the constructor does.
  void update();

  const std::string& folder() const { return folder_; }
  const std::vector<OuterRecord>& records() const { return facts_.records; }
  const IslandsSummary& summary() const { return summary_; }
  double now() const { return facts_.now; }  // of the last update, in seconds since 1970
  // Returns nullptr if the member has no folder that can be read.
  const RunHistory* history(const std::string& member) const;
  // How many updates of the weights the whole run has; empty: not known.
  const std::optional<std::int64_t>& total_updates() const { return total_updates_; }
  // Why the records could not be read further; empty: they could.
  const std::string& fault() const { return fault_; }

  bool finished() const;  // the last state is there, and no member is at work
  // "outer state 12 of 40, by island-3; 4 members: 2 working, 1 waiting, 1 dead"
  std::string state_text() const;

 private:
  void read_settings();
  void read_records();
  void read_members();
  MemberFacts facts_of(const std::string& member);

  std::string folder_;
  IslandsFacts facts_;
  IslandsSummary summary_;
  std::map<std::string, std::unique_ptr<RunHistory>> histories_;
  std::optional<std::int64_t> total_updates_;
  std::string fault_;
};

}  // namespace trireme
