// Periodically gathers what each rank did with its time, and reports who holds up the others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/parallel/work_split.h"
#include "trireme/train/straggler.h"

namespace trireme {

class RankWatch {
 public:
  struct Setting {
    double every = 0.0;     // seconds of steps; 0: never
    int micro_batches = 0;  // this rank's, of a step
    std::string file;       // ranks.json
  };
  RankWatch(const ProcessGrid& grid, Setting setting) : grid_(grid), setting_(std::move(setting)) {}

  // Call it when steps begin: removes the file of an earlier start, which may have had other ranks.
  void begin() const;

  // Adds a step of this rank. `longest_seconds` is the longest time of all ranks; it is their
  // common clock, so that all ranks agree when a window is full.
  void add(double seconds, double wait_data_seconds, double exposed_comm_seconds,
           double longest_seconds);

  // Collective over the world; call it after each step. When a window is full, it gathers the
  // window and measures the links; rank 0 writes the file and returns the lines to print.
  std::vector<std::string> look(std::int64_t step);

  // On rank 0, the window that the last look() has ended, where it did.
  const RankTable* ended() const { return ended_ ? &table_ : nullptr; }
  // Call it on all ranks between steps where the shares of the work have changed: what was measured
  // before is of other work.
  void work_changed(const parallel::WorkSplit& work);

 private:
  struct Place;
  struct Report;

  void begin_window();
  void find_places();
  void measure_links(Report& mine);
  std::vector<std::string> judge(const std::vector<Report>& reports);
  void write();

  const ProcessGrid& grid_;
  Setting setting_;
  double seconds_ = 0.0, wait_data_ = 0.0, exposed_comm_ = 0.0, longest_ = 0.0;
  std::int64_t steps_ = 0;  // of the window
  bool places_known_ = false;
  std::unique_ptr<Communicator> leaders_;  // the nodes' first ranks; set on these, if links exist
  RankTable table_;                        // on rank 0; places and hosts are kept between windows
  StragglerDetector detector_;
  bool ended_ = false;   // the last look() has ended a window
  bool failed_ = false;  // the file could not be written
};

}  // namespace trireme
