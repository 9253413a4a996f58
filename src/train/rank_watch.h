// Gathers now and then what each rank did with its time, and says who holds up the others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
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

  // A step of this rank; `longest_seconds` is the longest of all ranks, which is their common
  // clock.
  void add(double seconds, double wait_data_seconds, double exposed_comm_seconds,
           double longest_seconds);

  // After each step. When a window is full, gathers it and measures the links; rank 0 writes the
  // file and returns what there is to say. Collective over the world.
  std::vector<std::string> look(std::int64_t step);

 private:
  struct Place;
  struct Report;

  void find_places();
  void measure_links(Report& mine);
  std::vector<std::string> judge(const std::vector<Report>& reports);
  void write();

  const ProcessGrid& grid_;
  Setting setting_;
  double seconds_ = 0.0, wait_data_ = 0.0, exposed_comm_ = 0.0, longest_ = 0.0;
  std::int64_t steps_ = 0;  // of the window
  bool places_known_ = false;
  std::unique_ptr<Communicator> leaders_;  // the first rank of each node; on them, where links are
  RankTable table_;                        // on rank 0: places and hosts stay from window to window
  StragglerDetector detector_;
  bool failed_ = false;  // to write the file
};

}  // namespace trireme
