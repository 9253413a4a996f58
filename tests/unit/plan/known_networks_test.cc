// Networks by name and from files.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/plan/network_costs.h"

#include "support/message_of.h"
#include "support/network_example.h"

namespace trireme::plan {
namespace {

using testing::message_of;

TEST(KnownNetworks, AllAreOfUse) {
  ASSERT_GE(known_networks().size(), 8U);
  for (const NetworkDescription& one : known_networks()) {
    SCOPED_TRACE(one.name);
    EXPECT_FALSE(one.source.empty());
    EXPECT_FALSE(one.title.empty());
    for (const bool gpus : {true, false}) {
      for (const int ranks : {1, 4, 8, 16}) {
        const NetworkDescription network = known_network(one.name, ranks, gpus);
        EXPECT_EQ(network.nccl, gpus);
        EXPECT_EQ(network.ranks_of_node, ranks);
        const double seconds = total(data_cost(network, GridShape(4 * ranks, 1, 1)));
        EXPECT_GT(seconds, 1e-4);
        EXPECT_LT(seconds, 2.0);
      }
    }
  }
}

TEST(KnownNetworks, NodesBringTheirAdapters) {
  const auto host = [](std::string_view name, int ranks, bool gpus) {
    return known_network(name, ranks, gpus).rates.distances[1].host;
  };
  EXPECT_DOUBLE_EQ(host("dgx-h100", 8, true), 8 * 50e9);
  EXPECT_DOUBLE_EQ(host("ndr400-fat-tree", 8, true), 8 * 50e9);
  EXPECT_DOUBLE_EQ(host("ndr400-fat-tree", 4, true), 4 * 50e9);
  EXPECT_DOUBLE_EQ(host("ndr400-fat-tree", 8, false), 50e9);
  EXPECT_DOUBLE_EQ(host("ndr400-fat-tree+pcie-5", 8, true), 50e9);
  EXPECT_DOUBLE_EQ(host("dgx-1", 8, true), 4 * 12.5e9);
  EXPECT_DOUBLE_EQ(host("hdr200-2:1+dgx-a100", 8, true), 8 * 25e9);
  EXPECT_DOUBLE_EQ(known_network("dgx-a100", 8, true).node_links.bytes_per_second, 235e9);
}

TEST(KnownNetworks, DevicesHaveTheirNodes) {
  EXPECT_EQ(usual_node("a100-80"), "dgx-a100");
  EXPECT_EQ(usual_node("h200"), "dgx-h100");
  EXPECT_EQ(usual_node("t4"), "pcie-4");
  EXPECT_EQ(usual_node("cpu"), "");
}

// The bus bandwidth of nccl-tests, in bytes per second, as networks.json cites it.
TEST(KnownNetworks, ReachWhatWasMeasured) {
  constexpr std::size_t kHuge = std::size_t{16} << 30;
  const auto bandwidth = [](std::string_view node, int ranks, std::string_view operation) {
    const double times = operation == "all_reduce" ? 2.0 : 1.0, part = (ranks - 1.0) / ranks;
    return times * part * kHuge /
           total(data_cost(known_network(node, 8, true), GridShape(ranks, 1, 1), operation, kHuge));
  };
  EXPECT_NEAR(bandwidth("dgx-a100", 8, "all_reduce"), 235e9, 5e9);
  EXPECT_NEAR(bandwidth("dgx-h100", 8, "all_gather"), 370e9, 10e9);
  EXPECT_NEAR(bandwidth("dgx-h100", 256, "all_gather"), 340e9, 20e9);
}

TEST(KnownNetworks, OthersAreRefusedWithTheNearest) {
  const auto begins = [](std::string_view name, const std::string& start) {
    const std::string message = message_of<ConfigError>([&] { known_network(name, 8, true); });
    EXPECT_EQ(message.substr(0, start.size()), start);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  begins(
      "ndr40-fat-tree",
      "no network is called ndr40-fat-tree; the nearest is ndr400-fat-tree; known are edr100-2:1");
  begins("dgx-h10", "no network is called dgx-h10; the nearest is dgx-h100; known are ");
  begins("a\nb", "no network is called ");
  begins("", "a network has no name; as in ");
  begins("+dgx-a100", "a network has no name; as in ");
  begins("roce-100g+", "a kind of node has no name; as in ");
  begins("dgx-h100+pcie-4", "no network is called dgx-h100; ");
  begins("roce-100g+dgx-a10",
         "no kind of node is called dgx-a10; the nearest is dgx-a100; known are ");
  EXPECT_EQ(message_of<ConfigError>([] { known_network("roce-100g", 0, true); }),
            "network roce-100g: 0 ranks on a node; at least 1 is needed");
}

TEST(DescribedNetwork, IsThatOfTheFile) {
  // Three nodes below each of two leaf switches.
  const RankBlocks blocks(
      12, {{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}});
  JobNetwork job{.blocks = blocks, .rates = assumed_rates(blocks), .source = "rates.json"};
  const NetworkDescription measured = described_network(job, 2, false, true);
  EXPECT_EQ(measured.nodes_of_leaf, 3);
  EXPECT_EQ(measured.constants.efficiency, 1.0);
  EXPECT_EQ(measured.rates.distances, job.rates.distances);
  EXPECT_EQ(described_network(job, 2, true, false).nccl, true);
  EXPECT_GT(total(data_cost(measured, GridShape(12, 1, 1))), 0.0);
  job.rates.distances[1].flow = 0.0;
  EXPECT_EQ(message_of<ConfigError>([&] { described_network(job, 2, false, true); }),
            "network rates.json: messages between nodes have 0 bytes/s; a rate above 0 is needed");
  job.rates.distances.clear();
  EXPECT_EQ(message_of<ConfigError>([&] { described_network(job, 2, false, true); }),
            "network rates.json: it has no rates");
}

// What was measured among as many ranks counts.
TEST(DescribedNetwork, MeasuredErrorsCorrectTimes) {
  NetworkDescription network = network_of(1);
  const GridShape grid(4, 1, 1);
  const double before = total(data_cost(network, grid));
  for (const Algorithm one : {Algorithm::kPairwise, Algorithm::kHalving, Algorithm::kTiered}) {
    network.errors.push_back({Collective::kAllReduce, one, kLong, 4, 5e-3});
  }
  const CommunicationCost after = data_cost(network, grid);
  EXPECT_NEAR(total(after), before + 5e-3, 2e-4);
}

}  // namespace
}  // namespace trireme::plan
