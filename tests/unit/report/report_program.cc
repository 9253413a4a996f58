// Writes report pages of made-up studies and runs: report_program FOLDER. report_test.py reads
// them.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/core.h>

#include "trireme/io/whole_file.h"
#include "trireme/report/communication_table.h"
#include "trireme/report/fabric_record.h"
#include "trireme/report/rank_table.h"
#include "trireme/report/run_events.h"
#include "trireme/report/run_report.h"
#include "trireme/study/study_page.h"

namespace trireme {
namespace {

using scaling::Mode;
using scaling::PointResult;

std::vector<PointResult> study_results(int repeats) {
  std::vector<PointResult> results;
  for (int repeat = 1; repeat <= repeats; ++repeat) {
    for (const int nodes : {1, 2, 4, 8, 16}) {
      for (const Mode mode : {Mode::kStrong, Mode::kWeak}) {
        const double loss = mode == Mode::kStrong ? 0.05 : 0.01, wave = 1 + 0.01 * (repeat - 2);
        const double slower = 1 + loss * (nodes - 1) + 0.002 * nodes * (nodes - 1);
        const double step = mode == Mode::kStrong ? slower / nodes : slower;
        results.push_back({{mode, nodes, 2 * nodes, {nodes, 1, 2}, repeat},
                           {.units_per_second = 1e5 * nodes * wave / slower,
                            .step_seconds = step,
                            .communication_seconds = step * (slower - 1) / slower,
                            .data_seconds = 0.01 * step,
                            .checkpoint_seconds = 0.02,
                            .memory_bandwidth = 2.1e10 * nodes * wave,
                            .steps = 20}});
      }
    }
  }
  return results;
}

void write_study(const std::string& folder) {
  const Facts facts = {{"model", "gpt2-124m, \"quoted\" <b>&amp;"},
                       {"steps", "25, the first 5 left out"}};
  write_whole_file(folder + "/study.html",
                   scaling::page_of_study({facts, 30, 30, scaling::analyse(study_results(3))}));
  write_whole_file(folder + "/study_empty.html", scaling::page_of_study({facts, 0, 30, {}}));
  std::vector<PointResult> one = study_results(1);
  one.resize(1);
  write_whole_file(folder + "/study_one.html",
                   scaling::page_of_study({facts, 1, 30, scaling::analyse(one)}));
}

// What carries the run's collectives, and the picture of its network.
void write_network(const std::string& run) {
  CommunicationTable table{
      .source = "rates.json, measured 2026-01-31",
      .order = "tree",
      .communicators = {{"data", 8, 8, "all_reduce doubling to 256 KiB, halving"},
                        {"<tensor>", 2, 1, "all_reduce direct"}},
      .collectives = {}};
  for (int i = 0; i < 70; ++i) {
    table.collectives.push_back({.communicator = i < 65 ? "data" : "<tensor>",
                                 .collective = "all_reduce",
                                 .algorithm = i < 65 ? "halving" : "direct",
                                 .bytes = std::uint64_t{1024} << (i % 18),
                                 .count = 1 + i,
                                 .measured_seconds = 1e-3,
                                 // Each row has others; those of the last one are not known.
                                 .predicted_seconds = i < 69 ? (500 + 4 * i) * 1e-6 : 0.0,
                                 .link = i < 69 ? fmt::format("out of n{}", i % 3) : "",
                                 .link_seconds = i < 69 ? (i + 10) * 1e-5 : 0.0,
                                 .bus_bandwidth = i < 69 ? 1e6 * (300 + i) : 0.0});
  }
  table.tuned.push_back({.communicator = "data",
                         .collective = "all_reduce",
                         .bytes = 4096,
                         .algorithm = "halving",
                         .planned = "doubling",
                         .tried = {{"doubling", 2.5e-4}, {"halving", 1.25e-4}}});
  keep_longest(table, 60);
  write_whole_file(run + "/communication.json", to_json(table));
  FabricRecord record{.fabric = make_fat_tree({{4, 25e9}, {2, 0.0}}, 12.5e9),
                      .source = table.source,
                      .grid = {4, 2, 2},
                      .host_of = {},
                      .traffic = {.data = 120e6, .pipeline = 30e6, .tensor = 60e6, .ends = 0},
                      .cable_bytes = {}};
  for (int place = 0; place < 16; ++place) {
    record.host_of.push_back(record.fabric.host("host" + std::to_string(place / 2)).value());
  }
  record.cable_bytes = bytes_of_cables(record.grid, record.traffic, record.fabric, record.host_of);
  write_whole_file(run + "/fabric.json", to_json(record));
}

// A run of `steps` steps in a folder of its own, and its page.
void write_run(const std::string& run, int steps, const std::optional<std::string>& ended) {
  std::filesystem::remove_all(run);
  std::filesystem::create_directories(run);
  std::ofstream(run + "/config.ini") << "[run]\nsteps = 1000\n[model]\npreset = gpt2-124m\n";
  std::ofstream metrics(run + "/metrics.jsonl");
  for (int step = 1; step <= steps; ++step) {
    const double loss = 3 + 6 * std::exp(-step / 150.0) + 0.1 * std::sin(step * 12.9898);
    const double seconds = step % 200 == 0 ? 0.9 : 0.5 + 0.02 * std::sin(step * 78.233);
    metrics << R"({"step": )" << step << R"(, "loss": )"
            << (step == 7 ? "null" : std::to_string(loss))
            << R"(, "lr": 0.001, "grad_norm": 1, "tokens_per_s": )" << 16384 / seconds
            << R"(, "step_s": )" << seconds << R"(, "wait_data_s": 0.01, "comm_s": 0.06, )"
            << R"("memory_bytes": )" << 2000000000 + 100000LL * step
            << (step == 7 ? R"(, "skipped": true})" : "}") << "\n";
    if (step % 100 == 0) {
      metrics << R"({"step": )" << step << R"(, "eval_loss": )" << loss + 0.15 << "}\n";
    }
  }
  metrics.close();
  EventLog events(run + "/events.jsonl");
  events.write(0, "start", 0.0, "grid 4 x 1 x 2 (data x pipeline x tensor), first rank on n1");
  if (steps > 0) {
    events.write(250, "checkpoint", 1.25, run + "/checkpoints/step-00000250.h5");
    events.write(250, "start", 0.0, "grid 3 x 1 x 2 (data x pipeline x tensor), <n2> & n3");
    events.write(500, "checkpoint", 1.5, run + "/checkpoints/step-00000500.h5");
  }
  if (steps > 0) {
    RankTable ranks;
    ranks.first_step = 981;
    ranks.last_step = 1000;
    ranks.nodes = {{"n1", 1.2e9}, {"<n2>", 3e8}};
    ranks.stragglers = {"rank 39 on <n2> computes 1.6 x as long as its peers"};
    for (int i = 0; i < 40; ++i) {
      ranks.ranks.push_back({.node = i / 20,
                             .place = {i, 0, 0},
                             .compute_seconds = 0.4 + 0.001 * i,
                             .memory_bytes = 2e9,
                             .times_peers = 1.0 + 0.01 * i});
    }
    write_whole_file(run + "/ranks.json", to_json(ranks));
    write_network(run);
  }
  RunReport(run).write(ended);
}

}  // namespace
}  // namespace trireme

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string folder = arguments[1];
  trireme::write_study(folder);
  trireme::write_run(folder + "/run", 1000, "finished");
  trireme::write_run(folder + "/run_new", 0, {});
  trireme::RunReport(folder + "/no_such_run").write();  // one line, and that is all
  return 0;
}
