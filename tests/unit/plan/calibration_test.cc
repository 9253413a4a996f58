#include "trireme/plan/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/plan/planned_step.h"

#include "support/message_of.h"

namespace trireme::plan {
namespace {

using testing::message_of;

// A roofline: the share of the peak, the share of the memory's rate, and seconds of a start.
const std::vector<double> kTrue = {0.7, 0.85, 4e-6};

std::vector<CalibrationConstant> constants_of_roofline() {
  return {{"product", 0.5, 0.05, 1.0}, {"memory", 0.5, 0.05, 1.0}, {"start", 1e-6, 1e-8, 1e-3}};
}

// So many rows of three tables: products, copies and short operations, in turn. The logarithms of
// the measured times have normal errors of that deviation.
std::vector<CalibrationRow> rows_of_roofline(int count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> error(0.0, deviation);
  std::uniform_real_distribution<double> size(1.0, 10.0);
  const std::vector<std::string> tables = {"products", "copies", "short"};
  std::vector<CalibrationRow> rows;
  for (int i = 0; i < count; ++i) {
    const double scale = size(random);
    const double flops = i % 3 == 0 ? 1e-3 * scale : 1e-7 * scale;
    const double bytes = i % 3 == 1 ? 1e-3 * scale : 1e-7 * scale;
    const auto predict = [flops, bytes](const std::vector<double>& c) {
      return std::max(flops / c[0], bytes / c[1]) + c[2];
    };
    rows.push_back({.name = "row " + std::to_string(i),
                    .table = tables[static_cast<std::size_t>(i % 3)],
                    .measured = predict(kTrue) * std::exp(error(random)),
                    .predict = predict});
  }
  return rows;
}

TEST(Calibration, ExactRowsGiveTheConstantsBack) {
  const Calibration found = calibrate(constants_of_roofline(), rows_of_roofline(12, 0.0, 1));
  ASSERT_EQ(found.constants.size(), 3u);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(found.constants[j].value / kTrue[j], 1.0, 1e-4) << found.constants[j].name;
    EXPECT_EQ(found.constants[j].determined, Determined::kByRows);
    EXPECT_LT(found.constants[j].factor, 1.001);
  }
  EXPECT_EQ(found.values()[0], found.constants[0].value);
  EXPECT_LT(found.fitted.worst, 1e-3);
  EXPECT_EQ(found.fitted.rows, 12);
  EXPECT_EQ(found.compared.rows, 0);
  EXPECT_NEAR(found.fitted.rank_correlation, 1.0, 1e-12);
}

// Nine of ten intervals should hold the constant.
TEST(Calibration, ConstantsAreWithinTheirUncertainty) {
  constexpr int kSeeds = 200;
  std::vector<int> held(3, 0);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto rows = rows_of_roofline(24, 0.05, 100 + static_cast<std::uint64_t>(seed));
    const Calibration found = calibrate(constants_of_roofline(), rows);
    for (std::size_t j = 0; j < 3; ++j) {
      const double off = std::abs(std::log(found.constants[j].value / kTrue[j]));
      held[j] += off <= std::log(found.constants[j].factor) ? 1 : 0;
      EXPECT_LT(off, 0.2);
    }
  }
  for (const int count : held) {
    EXPECT_GE(count, 0.85 * kSeeds);
    EXPECT_LE(count, 0.97 * kSeeds);
  }
}

TEST(Calibration, OutliersDoNotPull) {
  std::vector<CalibrationRow> rows = rows_of_roofline(30, 0.02, 7);
  for (const std::size_t i : {0u, 4u, 11u}) rows[i].measured *= 20.0;  // one of each table
  const Calibration found = calibrate(constants_of_roofline(), rows);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(found.constants[j].value / kTrue[j], 1.0, 0.03) << found.constants[j].name;
  }
  EXPECT_NEAR(found.fitted.worst, 0.95, 0.01);
  // Least squares would be pulled by a tenth of log 20, to 0.74 of the constants.
}

TEST(Calibration, AnIntervalHoldsNineOfTenOtherRows) {
  constexpr int kSeeds = 300, kRows = 60;
  int held = 0, all = 0;
  double narrowest = 1.0, widest = 0.0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::vector<CalibrationRow> rows =
        rows_of_roofline(kRows, 0.08, 5000 + static_cast<std::uint64_t>(seed));
    for (int i = 0; i < kRows; ++i) {
      CalibrationRow& row = rows[static_cast<std::size_t>(i)];
      row.name += " of seed " + std::to_string(seed);
      row.fitted = philox_key(1, row.name) % 2 == 0;
    }
    // The other half is not even compared, so it has no part in the interval.
    std::vector<CalibrationRow> half;
    for (const CalibrationRow& row : rows) {
      if (row.fitted) half.push_back(row);
    }
    const Calibration found = calibrate(constants_of_roofline(), half);
    ASSERT_TRUE(found.intervals.rows && found.intervals.halves && found.intervals.tables);
    const double width = *found.intervals.rows;
    narrowest = std::min(narrowest, width);
    widest = std::max(widest, width);
    for (const CalibrationRow& row : rows) {
      if (row.fitted) continue;
      ++all;
      held += std::abs(row.measured / row.predict(found.values()) - 1.0) <= width ? 1 : 0;
    }
  }
  EXPECT_GE(held, 0.89 * all);
  EXPECT_LE(held, 0.93 * all);  // and not by being wide
  EXPECT_GT(narrowest, 0.05);
  EXPECT_LT(widest, 0.4);
}

TEST(Calibration, LeavingATableOutTellsOfTablesThatErrAlike) {
  std::vector<CalibrationRow> rows;
  const std::vector<double> shift = {0.7, 0.9, 1.1, 1.3};
  for (int i = 0; i < 40; ++i) {
    const double size = 1.0 + i % 7;
    rows.push_back({.name = "row " + std::to_string(i),
                    .table = "table " + std::to_string(i % 4),
                    .measured = size * shift[static_cast<std::size_t>(i % 4)],
                    .predict = [size](const std::vector<double>& c) { return size * c[0]; }});
  }
  const HeldOutIntervals widths = calibrate({{"rate", 1.0, 0.1, 10.0}}, rows).intervals;
  ASSERT_TRUE(widths.rows && widths.tables);
  EXPECT_GT(*widths.tables, 1.15 * *widths.rows);
}

TEST(Calibration, RowsThatAreOnlyComparedChangeNoConstant) {
  std::vector<CalibrationRow> rows = rows_of_roofline(24, 0.03, 3);
  const Calibration before = calibrate(constants_of_roofline(), rows);
  for (int i = 0; i < 12; ++i) {
    rows.push_back(rows[static_cast<std::size_t>(i)]);
    rows.back().measured *= 1.5;
    rows.back().fitted = false;
  }
  const Calibration found = calibrate(constants_of_roofline(), rows);
  EXPECT_EQ(found.values(), before.values());
  EXPECT_EQ(found.compared.rows, 12);
  EXPECT_NEAR(found.compared.mean, 1.0 / 3, 0.05);
  EXPECT_GT(*found.intervals.rows, 2 * *before.intervals.rows);  // they count as not seen
}

TEST(Calibration, ConstantsThatNoRowDeterminesStayAndAreTold) {
  // Only products: neither the memory's share nor, under 2 ms, a start of microseconds shows.
  std::vector<CalibrationRow> rows = rows_of_roofline(36, 0.03, 5);
  std::erase_if(rows, [](const CalibrationRow& row) { return row.table != "products"; });
  const Calibration found = calibrate(constants_of_roofline(), rows);
  EXPECT_EQ(found.constants[0].determined, Determined::kByRows);
  EXPECT_EQ(found.constants[1].determined, Determined::kByNoRow);
  EXPECT_EQ(found.constants[1].value, 0.5);
  EXPECT_TRUE(std::isinf(found.constants[1].factor));
  EXPECT_EQ(calibration_lines(found)[1], "memory 0.5: no row determines it, it is as it was");

  // Only the product of two constants shows, which comes out right; neither of the two is told.
  for (CalibrationRow& row : rows) {
    row.predict = [size = row.measured / 6](const std::vector<double>& c) {
      return size * c[0] * c[1];
    };
  }
  const Calibration joint = calibrate({{"a", 1.0, 0.01, 100.0}, {"b", 1.0, 0.01, 100.0}}, rows);
  EXPECT_NEAR(joint.constants[0].value * joint.constants[1].value, 6.0, 1e-3);
  for (const FittedConstant& constant : joint.constants) {
    EXPECT_EQ(constant.determined, Determined::kOnlyJointly);
    EXPECT_TRUE(std::isinf(constant.factor));
  }
}

TEST(Calibration, AConstantThatHardlyShowsIsNotFittedToNoise) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> error(0.0, 0.05);
  std::vector<CalibrationRow> rows;
  for (int i = 0; i < 20; ++i) {
    const double size = 1.0 + i;
    rows.push_back({.name = "row " + std::to_string(i),
                    .table = "one",
                    .measured = size * std::exp(error(random)),
                    .predict = [=](const std::vector<double>& c) {
                      return size * c[0] + (i % 2 == 0 ? 1e-4 * size * c[1] : 0.0);
                    }});
  }
  const Calibration found = calibrate({{"large", 2.0, 0.1, 9.0}, {"small", 1.0, 1e-4, 1e4}}, rows);
  EXPECT_NEAR(found.constants[0].value, 1.0, 0.05);
  EXPECT_NEAR(found.constants[1].value, 1.0, 1e-3);
  EXPECT_EQ(found.constants[1].determined, Determined::kByNoRow);
}

TEST(Calibration, ABoundHolds) {
  std::vector<CalibrationConstant> constants = constants_of_roofline();
  constants[0].high = 0.6;  // the rows say 0.7
  const Calibration found = calibrate(constants, rows_of_roofline(24, 0.02, 9));
  EXPECT_NEAR(found.constants[0].value, 0.6, 1e-12);
  EXPECT_EQ(found.constants[0].determined, Determined::kAtBound);
  EXPECT_NEAR(found.constants[1].value, 0.85, 0.02);
}

TEST(Calibration, ManyConstantsFarFromTheirStart) {
  // Nine rates, a decade away from where they begin; each row is a sum of three shares.
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> size(0.1, 1.0);
  std::vector<CalibrationConstant> constants;
  std::vector<double> right;
  for (int j = 0; j < 9; ++j) {
    constants.push_back({"rate " + std::to_string(j), 1.0, 1e-3, 1e3});
    right.push_back(j % 2 == 0 ? 10.0 + j : 0.1 + 0.01 * j);
  }
  std::vector<CalibrationRow> rows;
  for (std::size_t i = 0; i < 54; ++i) {
    const std::size_t first = i % 9, second = (i + 1 + i / 9) % 9;
    const auto predict = [=, a = size(random), b = size(random)](const std::vector<double>& c) {
      return a * c[first] + b * c[second];
    };
    rows.push_back({.name = std::to_string(i),
                    .table = std::to_string(i / 9),
                    .measured = predict(right),
                    .predict = predict});
  }
  const Calibration found = calibrate(constants, rows);
  for (std::size_t j = 0; j < right.size(); ++j) {
    EXPECT_NEAR(found.constants[j].value / right[j], 1.0, 0.01) << j;
  }
}

TEST(Calibration, WhatCannotBeFittedIsRefused) {
  const auto constants = constants_of_roofline();
  const auto said = [&](const std::vector<CalibrationConstant>& c,
                        const std::vector<CalibrationRow>& rows) {
    return message_of([&] { calibrate(c, rows); });
  };
  EXPECT_EQ(said(constants, rows_of_roofline(2, 0.0, 1)),
            "2 rows cannot determine 3 constants: measure more runs, or fit fewer constants");
  auto rows = rows_of_roofline(6, 0.0, 1);
  for (CalibrationRow& row : rows) row.fitted = false;
  EXPECT_EQ(said(constants, rows).substr(0, 7), "0 rows ");
  for (const double wrong : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    rows = rows_of_roofline(6, 0.0, 1);
    rows[4].measured = wrong;
    const std::string words = said(constants, rows);
    EXPECT_EQ(words.substr(0, 24), "copies, row 4: measured ") << words;
    rows = rows_of_roofline(6, 0.0, 1);
    rows[1].predict = [=](const std::vector<double>&) { return wrong; };
    EXPECT_NE(said(constants, rows).find("row 1: predicted"), std::string::npos);
  }
  rows = rows_of_roofline(6, 0.0, 1);
  EXPECT_EQ(said({}, rows), "a calibration without a constant to fit");
  EXPECT_EQ(said({{"rate", 2.0, 0.1, 1.0}}, rows),
            "the constant rate: it must begin, at 2, between two bounds above 0, here 0.1 and 1");
  EXPECT_NE(said({{"rate", 0.5, 0.0, 1.0}}, rows), "no error");
}

TEST(Calibration, AsManyRowsAsConstantsTellNoUncertainty) {
  const Calibration found = calibrate(constants_of_roofline(), rows_of_roofline(3, 0.0, 1));
  EXPECT_NEAR(found.constants[0].value, 0.7, 1e-3);
  EXPECT_TRUE(std::isinf(found.constants[0].factor));
  EXPECT_FALSE(found.intervals.halves);
  EXPECT_FALSE(found.intervals.tables);
}

TEST(Calibration, QuantilesAndRanks) {
  std::vector<double> errors = {0.9, 0.1, 0.5, 0.3, 0.2, 0.4, 0.8, 0.6};
  EXPECT_TRUE(std::isinf(conformal_half_width(errors)));
  errors.push_back(0.7);
  EXPECT_EQ(conformal_half_width(errors), 0.9);  // the ninth of nine
  for (int i = 0; i < 10; ++i) errors.push_back(0.05);
  EXPECT_EQ(conformal_half_width(errors), 0.8);  // the 18th of 19
  EXPECT_TRUE(std::isinf(conformal_half_width({})));
  EXPECT_DOUBLE_EQ(rank_correlation({1.0, 2.0, 3.0}, {10.0, 11.0, 500.0}), 1.0);
  EXPECT_DOUBLE_EQ(rank_correlation({1.0, 2.0, 3.0}, {3.0, 2.0, 1.0}), -1.0);
  EXPECT_DOUBLE_EQ(rank_correlation({1.0, 2.0, 2.0, 3.0}, {1.0, 2.0, 2.0, 3.0}), 1.0);
  EXPECT_NEAR(rank_correlation({1.0, 2.0, 3.0, 4.0, 5.0}, {2.0, 1.0, 4.0, 3.0, 5.0}), 0.8, 1e-12);
  EXPECT_EQ(rank_correlation({1.0, 1.0}, {1.0, 2.0}), 0.0);
  EXPECT_EQ(rank_correlation({}, {}), 0.0);
}

TEST(Calibration, SaysWhatItFound) {
  std::vector<CalibrationRow> rows = rows_of_roofline(24, 0.05, 2);
  rows[3].fitted = false;
  const Calibration found = calibrate(constants_of_roofline(), rows);
  const std::vector<std::string> lines = calibration_lines(found);
  ASSERT_EQ(lines.size(), 3 + 5 + 24u);
  EXPECT_EQ(lines[0].substr(0, 8), "product ");
  EXPECT_NE(lines[0].find("was 0.5"), std::string::npos);
  EXPECT_EQ(lines[3].substr(0, 27), "23 rows fitted: mean error ");
  EXPECT_EQ(lines[4].substr(0, 22), "1 row only compared: m");
  EXPECT_EQ(lines[5].substr(0, 48), "each row left out: nine of ten times are within ");
  EXPECT_EQ(lines[8].substr(0, 25), "products, row 0: measured");
  EXPECT_NE(lines[11].find(", not fitted"), std::string::npos);
  const Json json = Json::parse(calibration_json(found).dump());
  EXPECT_EQ(json.at("constants").at(2).at("name").text(), "start");
  EXPECT_EQ(json.at("constants").at(2).at("determined").text(), "by rows");
  EXPECT_DOUBLE_EQ(json.at("intervals").at("rows").number(), *found.intervals.rows);
  EXPECT_EQ(json.at("rows").items().size(), 24u);
}

TEST(PlannedStepFile, IsReadAsItWasWritten) {
  PlannedStep step{
      .low = 0.9,
      .predicted = 1.0,
      .high = 1.25,
      .device = "h100",
      .network = "ndr400-fat-tree",
  };
  const PlannedStep unmeasured = read_planned_step(write_planned_step(step), "plan.json");
  EXPECT_FALSE(unmeasured.measured);
  EXPECT_EQ(unmeasured.predicted, 1.0);
  EXPECT_EQ(unmeasured.high, 1.25);
  step.measured = 0.1 + 0.2;
  const PlannedStep read = read_planned_step(write_planned_step(step), "plan.json");
  EXPECT_EQ(read.measured, step.measured);
  EXPECT_EQ(read.low, 0.9);
  EXPECT_EQ(read.device, "h100");
  EXPECT_EQ(read.network, "ndr400-fat-tree");
}

TEST(PlannedStepFile, WhatMakesNoSenseIsRefused) {
  const auto said = [](const std::string& text) {
    return message_of([&] { read_planned_step(text, "run/plan.json"); });
  };
  EXPECT_EQ(said("{").substr(0, 15), "run/plan.json: ");
  EXPECT_NE(said("[]").find("a plan.json that trireme wrote was expected"), std::string::npos);
  const std::string text = write_planned_step({.low = 0.9, .predicted = 1.0, .high = 1.25});
  EXPECT_EQ(said(text), "no error");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_NE(said(with("0.9", "1.1")).find("low_s <= predicted_s"), std::string::npos);
  EXPECT_NE(said(with("0.9", "-1")).find("above 0"), std::string::npos);
  EXPECT_NE(said(with("0.9", "null")), "no error");
  EXPECT_NE(said(with("\"high_s\"", "\"higher_s\"")), "no error");
  EXPECT_EQ(said(with("{", "{\"later\": 1, ")), "no error");
  EXPECT_NE(said(with("{", "{\"measured_s\": 0, ")).find("above 0"), std::string::npos);
}

}  // namespace
}  // namespace trireme::plan
