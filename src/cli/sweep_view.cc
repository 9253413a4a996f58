#include "cli/sweep_view.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/printable.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kWidestValue = 24;

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "-";
}

std::vector<std::string> head_of(const SweepHistory& sweep) {
  std::vector<std::string> head = {"", "point"};
  for (const std::string& key : sweep.keys()) head.push_back(printable(key));
  head.insert(head.end(), {"step", "loss", "validation", "state"});
  return head;
}

std::vector<std::string> cells_of(const SweepRun& run) {
  std::vector<std::string> cells = {run.best ? "*" : "", std::to_string(run.point)};
  for (const std::string& value : run.values) {
    cells.push_back(value.empty() ? "-" : shown(value, kWidestValue));
  }
  cells.push_back(run.total_steps ? fmt::format("{}/{}", run.step, *run.total_steps)
                                  : std::to_string(run.step));
  cells.push_back(loss_text(run.loss));
  cells.push_back(loss_text(run.validation_loss));
  cells.push_back(printable(run.state));
  return cells;
}

}  // namespace

std::vector<std::string> sweep_view(const SweepHistory& sweep, const ViewSize& size) {
  std::vector<const SweepRun*> runs;
  for (const SweepRun& run : sweep.runs()) runs.push_back(&run);
  // Beside the table: two lines above it, and one or two below.
  const std::size_t room = size.rows > 4 ? size.rows - 4 : 1;
  std::size_t left_out = 0;
  if (runs.size() > room) {
    left_out = runs.size() - room;
    const auto best =
        std::find_if(runs.begin(), runs.end(), [](const SweepRun* run) { return run->best; });
    if (best != runs.end() && best - runs.begin() >= static_cast<std::ptrdiff_t>(room)) {
      runs[room - 1] = *best;
    }
    runs.resize(room);
  }
  std::vector<std::vector<std::string>> rows = {head_of(sweep)};
  for (const SweepRun* run : runs) rows.push_back(cells_of(*run));
  std::vector<std::string> lines = {
      fmt::format("{}: {}", printable(sweep.folder()), sweep.summary())};
  for (std::string& line : aligned(rows)) lines.push_back(std::move(line));
  if (left_out > 0) lines.push_back(fmt::format("and {} more", left_out));
  lines.push_back(fmt::format("* best: the lowest {} loss; loss: the mean of the last {} steps",
                              sweep.judged_by_validation() ? "validation" : "training",
                              SweepHistory::kLossSteps));
  if (size.whole) return lines;
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

}  // namespace trireme::cli
