// A scaling study in a folder: what is to be run, what is done, and what is shown of it.
//   study.json               what the study is; another configuration is refused there
//   points/NAME/config.ini   of one point; log: what it said; result.json: complete when it is
//   there points.csv summary.csv report.html
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
  Config config;           // batch.global is that of the fewest nodes, where it grows
  std::vector<int> nodes;  // rising
  int ranks_per_node = 1;
  std::vector<Mode> modes;
  std::vector<std::pair<int, int>> grids;  // pipeline x tensor; data is what they leave
  int repeats = 3;
  int steps = 20;   // of each point
  int warmup = 5;   // the first of them, not measured
  std::string ran;  // how and where, for the report: "srun, job 12"
};

// Reads "1,2,4", "strong,weak", "1x1,1x2". Throw ConfigError that names the flag.
std::vector<int> read_counts(const std::string& text);
std::vector<Mode> read_modes(const std::string& text);
std::vector<std::pair<int, int>> read_grids(const std::string& text);

// All points, in the order in which they are run: each repeat is a round through all of them, so
// that a machine that drifts does so for all alike. Throws ConfigError for a grid or a batch that
// does not fit a number of nodes.
std::vector<Point> points_of(const StudyPlan& plan);

// What a point trains: the study's configuration at its grid and batch, at a constant learning
// rate, with one checkpoint at the end and no evaluation. Its run folder is `run_folder`.
Config config_of(const StudyPlan& plan, const Point& point, const std::string& run_folder);

class StudyFolder {
 public:
  // Makes the folder or goes on in it, and holds it while the object lives. Throws ConfigError
  // where it belongs to another study, RunFolderError where it cannot be written to, or is in use.
  StudyFolder(std::string path, const StudyPlan& plan);
  ~StudyFolder();
  StudyFolder(const StudyFolder&) = delete;
  StudyFolder& operator=(const StudyFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string folder_of(const Point& point) const;
  // Throws away what an interrupted start of the point left.
  void begin(const Point& point) const;
  std::optional<Measurement> result_of(const Point& point) const;  // none: not done
  // points.csv, summary.csv and report.html of what is done. Returns the same as text for a
  // terminal.
  std::string report(const std::vector<Point>& points) const;

 private:
  std::string path_;
  const StudyPlan& plan_;
  int lock_ = -1;
};

// The configuration of a point that was begun, which rank 0 reads for all. Collective over comm.
// Throws ConfigError.
Config read_point(Communicator& comm, const std::string& folder);

// Measures memory, trains, and writes the result: what a launcher starts. Collective over the
// world.
ExitStatus run_point(Runtime& runtime, const std::string& folder, const Config& config,
                     const StopSignals& signals);

// Bytes/s that all ranks together read and write, the best of a few rounds: on CPUs in a[i] = b[i]
// + s c[i] (24 bytes an element, as STREAM counts), on GPUs in a copy. 192 MiB on each rank
// meanwhile, 512 MiB of a GPU. Collective over comm.
double measure_memory_bandwidth(Communicator& comm, const ops::Context& ctx);

}  // namespace trireme::scaling
