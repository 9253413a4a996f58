// A scaling study in a folder: the points to run, their results, and the report.
//   study.json                  the study's settings; a study with other settings is refused
//   points/NAME/config.ini      configuration of one point
//   points/NAME/log             its output
//   points/NAME/result.json     its result and conditions; once this is complete, the run is done
//   predicted.json              what a planner said of the points (--plan)
//   points.csv, summary.csv, report.html
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/locked_file.h"
#include "trireme/ops/context.h"
#include "trireme/setup/settled_micro.h"
#include "trireme/study/scaling.h"
#include "trireme/train/signals.h"

namespace trireme::scaling {

struct StudyPlan {
  Config config;           // batch.global in weak scaling is that of the fewest nodes
  std::vector<int> nodes;  // ascending
  int ranks_per_node = 1;
  std::vector<Mode> modes;
  std::vector<GridShape> grids;  // of one replica; data gets the other ranks
  int repeats = 3;
  int steps = 20;  // of each point
  int warmup = 5;  // the first of these steps, not measured
  // The least parallel efficiency at which the verdict calls a number of nodes efficient.
  double efficiency = 0.8;
  std::string launcher;  // "srun", "mpiexec", "sbatch"; recorded by points that begin now
};

// These parse "1,2,4", "strong,weak", "1x1,1x2". They throw ConfigError that names the flag.
std::vector<int> read_counts(const std::string& text);
std::vector<Mode> read_modes(const std::string& text);
std::vector<GridShape> read_grids(const std::string& text);

// Returns all points, in the order in which they are run. Each repeat is a round through all of
// them, so that a drift of the machine affects all points alike. Points that would train the same
// thing (twin_of) are one point, of the first mode. A grid that needs more ranks than some numbers
// of nodes have has no points there, but one of data parallelism alone at the fewest nodes, which
// it is compared with. Throws ConfigError for a grid or a batch that does not fit a number of
// nodes.
std::vector<Point> points_of(const StudyPlan& plan);

// Settles batch.micro of the plan, if it is open (micro_of_keys): one number for all points, so
// that they can be compared. It is the one of the study that `folder` holds, if any; otherwise the
// largest that every point can have and for none is above what settled_micro_ahead returns for
// these ranks.
void settle_micro(StudyPlan& plan, const std::vector<Point>& points, const std::string& folder,
                  const RanksAhead& ranks);

// Returns the point of the other mode that trains the same thing: at the fewest nodes strong and
// weak scaling have the same batch. nullopt at more nodes.
std::optional<Point> twin_of(const StudyPlan& plan, const Point& point);

// Returns the results of each of the plan's modes, one mode after the other and named by it. A
// result that has a twin counts in every mode.
std::vector<PointResult> results_by_mode(const StudyPlan& plan,
                                         std::span<const PointResult> results);

// Returns the complete runs of a point or of its twin in the study's folder. A folder of an earlier
// version may have two, since that version measured twins separately; both count.
std::vector<PointResult> results_of(const std::string& folder, const StudyPlan& plan,
                                    const Point& point);

// Returns the configuration of a point: the study's, with the point's grid and batch, a constant
// learning rate, one checkpoint at the end and no evaluation. Its run folder is `run_folder`.
Config config_of(const StudyPlan& plan, const Point& point, const std::string& run_folder);

// What a planner said of points, by their names (Point::name, of the first repeat).
struct Predictions {
  std::string machine;  // the device and the network that it was told
  std::vector<std::pair<std::string, Predicted>> points;
};

class StudyFolder {
 public:
  // Creates the folder or continues in it, and keeps it locked while the object lives. `plan` must
  // outlive this object. Throws ConfigError where the folder belongs to another study,
  // RunFolderError where it cannot be written to or is in use.
  StudyFolder(std::string path, const StudyPlan& plan);

  const std::string& path() const { return path_; }
  std::string folder_of(const Point& point) const;
  // Deletes what an interrupted start of the point left behind, and writes the point's
  // configuration.
  void begin(const Point& point) const;
  std::vector<PointResult> results_of(const Point& point) const;  // empty: not done
  // Keeps predictions in the folder, for this report and later ones.
  void keep(const Predictions& predictions) const;
  // Writes points.csv, summary.csv and report.html for the points that are done. Returns the same
  // as text for a terminal.
  std::string report(const std::vector<Point>& points) const;

 private:
  std::string path_;
  const StudyPlan& plan_;
  std::unique_ptr<LockedFile> lock_;
};

// Collective over the world. A launcher starts this for each point: it reads what `trireme scale`
// wrote into the point's folder, measures memory bandwidth, trains, and writes the result.
// `program` is the version that the result records. Throws ConfigError if the folder has no point
// or no valid configuration, and RunFolderError if its point.json is missing or damaged.
ExitStatus run_point(Runtime& runtime, const std::string& folder, const std::string& program,
                     const StopSignals& signals);

// Collective over comm. Returns the bytes/s that all ranks together read and write, the best of a
// few rounds: on CPUs in a[i] = b[i] + s c[i] (24 bytes per element, as STREAM counts), on GPUs in
// a copy. Uses 192 MiB on each rank meanwhile, or 512 MiB of a GPU.
double measure_memory_bandwidth(Communicator& comm, const ops::Context& ctx);

}  // namespace trireme::scaling
