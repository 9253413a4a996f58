// What a calibration found, for people and for programs.
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/plan/calibration.h"

namespace trireme::plan {
namespace {

std::string_view name_of(Determined determined) {
  switch (determined) {
    case Determined::kByRows:
      return "by rows";
    case Determined::kOnlyJointly:
      return "only jointly";
    case Determined::kByNoRow:
      return "by no row";
    case Determined::kAtBound:
      return "at bound";
  }
  throw InternalError("a kind of determination without a name");
}

std::string constant_line(const FittedConstant& constant) {
  const std::string name = printable(constant.name);
  switch (constant.determined) {
    case Determined::kOnlyJointly:
      return fmt::format("{} {:.4g}: the rows determine it only together with others", name,
                         constant.value);
    case Determined::kByNoRow:
      return fmt::format("{} {:.4g}: no row determines it, it is as it was", name, constant.value);
    case Determined::kAtBound:
      return fmt::format("{} {:.4g}: at its bound, the rows would have it beyond", name,
                         constant.value);
    case Determined::kByRows:
      break;
  }
  const std::string range = std::isfinite(constant.factor)
                                ? fmt::format("{:.4g} to {:.4g}", constant.value / constant.factor,
                                              constant.value * constant.factor)
                                : "as many rows as constants: uncertainty not known";
  return fmt::format("{} {:.4g} ({}), was {:.4g}", name, constant.value, range, constant.start);
}

std::string row_line(const RowError& row) {
  return fmt::format("{}, {}: measured {}, predicted {}, {:+.1f} %{}", printable(row.table),
                     printable(row.name), time_text(row.measured), time_text(row.predicted),
                     100.0 * row.relative(), row.fitted ? "" : ", not fitted");
}

std::string summary_line(std::string_view what, const ErrorSummary& summary) {
  return fmt::format("{} {}: mean error {:.1f} %, worst {:.1f} % ({}), rank correlation {:.3f}",
                     counted(summary.rows, "row"), what, 100.0 * summary.mean,
                     100.0 * summary.worst, printable(summary.worst_row), summary.rank_correlation);
}

std::string interval_line(std::string_view left_out, const std::optional<double>& width) {
  if (!width) return fmt::format("{} left out: too few rows remain for a fit", left_out);
  if (!std::isfinite(*width)) {
    return fmt::format("{} left out: nine of ten cannot be told from less than nine rows",
                       left_out);
  }
  return fmt::format("{} left out: nine of ten times are within {:.1f} % of the prediction",
                     left_out, 100.0 * *width);
}

Json json_of(const ErrorSummary& summary) {
  return Json::object({{"rows", summary.rows},
                       {"mean", summary.mean},
                       {"worst", summary.worst},
                       {"worst_row", summary.worst_row},
                       {"rank_correlation", summary.rank_correlation}});
}

Json json_of(const std::optional<double>& width) {
  return width ? Json(*width) : Json();
}

}  // namespace

std::vector<std::string> calibration_lines(const Calibration& calibration) {
  std::vector<std::string> lines;
  for (const FittedConstant& constant : calibration.constants) {
    lines.push_back(constant_line(constant));
  }
  lines.push_back(summary_line("fitted", calibration.fitted));
  if (calibration.compared.rows > 0) {
    lines.push_back(summary_line("only compared", calibration.compared));
  }
  lines.push_back(interval_line("each row", calibration.intervals.rows));
  lines.push_back(interval_line("half of the rows", calibration.intervals.halves));
  lines.push_back(interval_line("each table", calibration.intervals.tables));
  for (const RowError& row : calibration.rows) lines.push_back(row_line(row));
  return lines;
}

Json calibration_json(const Calibration& calibration) {
  Json constants = Json::array(), rows = Json::array();
  for (const FittedConstant& constant : calibration.constants) {
    constants.push_back(Json::object({{"name", constant.name},
                                      {"value", constant.value},
                                      {"start", constant.start},
                                      {"factor", constant.factor},
                                      {"determined", name_of(constant.determined)}}));
  }
  for (const RowError& row : calibration.rows) {
    rows.push_back(Json::object({{"name", row.name},
                                 {"table", row.table},
                                 {"measured_s", row.measured},
                                 {"predicted_s", row.predicted},
                                 {"fitted", row.fitted}}));
  }
  return Json::object(
      {{"constants", constants},
       {"rows", rows},
       {"fitted", json_of(calibration.fitted)},
       {"compared", json_of(calibration.compared)},
       {"intervals", Json::object({{"rows", json_of(calibration.intervals.rows)},
                                   {"halves", json_of(calibration.intervals.halves)},
                                   {"tables", json_of(calibration.intervals.tables)}})}});
}

}  // namespace trireme::plan
