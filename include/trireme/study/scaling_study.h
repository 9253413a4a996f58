// A scaling study in a folder: what is to be run, what is done, and the report.
//   study.json                  the study's settings; a study with other settings is refused
//   points/NAME/config.ini      configuration of one point
//   points/NAME/log             its output
//   points/NAME/result.json     its result; the point is done when this is complete
//   points.csv, summary.csv, report.html
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/ops/context.h"
#include "trireme/study/scaling.h"
#include "trireme/train/signals.h"

namespace trireme::scaling {

struct StudyPlan {
  Config config;           // in weak scaling batch.global is that of the fewest nodes
  std::vector<int> nodes;  // ascending
  int ranks_per_node = 1;
  std::vector<Mode> modes;
  std::vector<std::pair<int, int>> grids;  // pipeline x tensor; data gets the other ranks
  int repeats = 3;
  int steps = 20;   // of each point
  int warmup = 5;   // of these steps, not measured
  std::string ran;  // how and where, for the report: "srun, job 12"
};

// Parse "1,2,4", "strong,weak", "1x1,1x2". Throw ConfigError that names the flag.
std::vector<int> read_counts(const std::string& text);
std::vector<Mode> read_modes(const std::string& text);
std::vector<std::pair<int, int>> read_grids(const std::string& text);

// Returns all points, in the order in which they are run. Each repeat is a round through all of
// them, so that a drift of the machine affects all alike. Throws ConfigError for a grid or a batch
// that does not fit a number of nodes.
std::vector<Point> points_of(const StudyPlan& plan);

// Returns the configuration of a point: the study's, with the point's grid and batch, a constant
// learning rate, one checkpoint at the end and no evaluation. Its run folder is `run_folder`.
Config config_of(const StudyPlan& plan, const Point& point, const std::string& run_folder);

class StudyFolder {
 public:
  // Creates the folder or goes on in it, and keeps it locked while the object lives. `plan` must
  // outlive this object. Throws ConfigError where the folder belongs to another study,
  // RunFolderError where it cannot be written to or is in use.
  StudyFolder(std::string path, const StudyPlan& plan);
  ~StudyFolder();
  StudyFolder(const StudyFolder&) = delete;
  StudyFolder& operator=(const StudyFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string folder_of(const Point& point) const;
  // Deletes what an interrupted start of the point left, and writes the point's configuration.
  void begin(const Point& point) const;
  std::optional<Measurement> result_of(const Point& point) const;  // nullopt: not done
  // Writes points.csv, summary.csv and report.html for the points that are done. Returns the same
  // as text for a terminal.
  std::string report(const std::vector<Point>& points) const;

 private:
  std::string path_;
  const StudyPlan& plan_;
  int lock_ = -1;
};

// Collective over comm. Returns the configuration of a point that was begun; rank 0 reads it for
// all. Throws ConfigError.
Config read_point(Communicator& comm, const std::string& folder);

// Collective over the world. What a launcher starts: measures memory bandwidth, trains, and writes
// the result.
ExitStatus run_point(Runtime& runtime, const std::string& folder, const Config& config,
                     const StopSignals& signals);

// Collective over comm. Returns the bytes/s that all ranks together read and write, the best of a
// few rounds: on CPUs in a[i] = b[i] + s c[i] (24 bytes per element, as STREAM counts), on GPUs in
// a copy. Uses 192 MiB on each rank meanwhile, or 512 MiB of a GPU.
double measure_memory_bandwidth(Communicator& comm, const ops::Context& ctx);

}  // namespace trireme::scaling
