// What the planner predicts and chooses from 64 to 4,096 ranks on a fat tree of three levels, each
// tapered 2:1. Prints a table for each collective, in Markdown.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/topology/planner.h"

namespace {

using namespace trireme;

constexpr double kRate = 25e9;  // bytes/s of a host
// Algorithms are simulated too if it takes little: few ranks, messages and segments.
constexpr int kMostRanks = 64;
constexpr double kMostMessages = 800;
constexpr std::size_t kMostSimulatedBytes = std::size_t{16} << 20;

std::string size(std::size_t bytes) {
  return bytes < (std::size_t{1} << 20) ? fmt::format("{} KiB", bytes >> 10)
                                        : fmt::format("{} MiB", bytes >> 20);
}

double seconds_of(const auto& call) {
  const auto began = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void show(int leaf, int pod, int pods, bool any_order) {
  const int ranks = leaf * pod * pods;
  const Fabric fabric =
      make_fat_tree({{leaf, leaf * kRate / 2}, {pod, pod * leaf * kRate / 4}, {pods, 0.0}}, kRate);
  std::vector<int> host_of;
  for (int i = 0; i < ranks; ++i) host_of.push_back(*fabric.host(fmt::format("host{}", i)));
  const TreeNetwork network(fabric, host_of, {});
  Predictor predictor(network, {.latency = 2e-6, .message = 2e-7, .reduced_byte = 5e-11},
                      std::make_shared<const RankBlocks>(network.rank_blocks()));
  AlgorithmTable table;
  const double planning = seconds_of([&] { table = make_table(predictor, any_order); });
  fmt::print("\n{} ranks ({} x {} x {}), planned in {:.3f} s: {}\n\n", ranks, leaf, pod, pods,
             planning, table_text(table, ranks));
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    fmt::print("| {} |", name_of(collective));
    const auto algorithms = choosable(collective, true);
    for (const Algorithm algorithm : algorithms) fmt::print(" {} |", name_of(algorithm));
    fmt::print(" chosen |\n|---|");
    for (std::size_t i = 0; i < algorithms.size(); ++i) fmt::print("---|");
    fmt::print("---|\n");
    for (const int power : {10, 16, 20, 24, 26}) {
      const std::size_t bytes = std::size_t{1} << power;
      fmt::print("| {} |", size(bytes));
      for (const Algorithm algorithm : algorithms) {
        const auto form = predictor.closed_form(collective, algorithm, bytes);
        std::string cell = form ? fmt::format("{:.0f}", 1e6 * form->seconds) : "";
        if (ranks <= kMostRanks && predictor.messages(collective, algorithm) <= kMostMessages &&
            bytes <= kMostSimulatedBytes) {
          const Prediction run = predictor.simulate(collective, algorithm, bytes);
          cell += fmt::format("{}{:.0f} s", cell.empty() ? "" : ", ", 1e6 * run.seconds);
        }
        fmt::print(" {} |", cell);
        std::fflush(stdout);
      }
      fmt::print(" {} |\n", name_of(table.choose(collective, bytes, ranks)));
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const bool any_order = count > 1 && std::string(arguments[1]) == "any";
  fmt::print("microseconds by the closed form, and simulated (s)\n");
  show(4, 4, 4, any_order);
  show(8, 4, 8, any_order);
  show(8, 16, 8, any_order);
  show(16, 16, 16, any_order);
}
