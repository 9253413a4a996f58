// Stored rates, predicted times, and the algorithms that follow from them.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/topology/stored_rates.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using testing::message_of;

StoredRates measured() {
  return {.rates = {.distances = {{5e-7, 8e9, 20e9, 0.0},
                                  {2e-6, 12e9, 12.5e9, 0.0},
                                  {4e-6, 12e9, 12.5e9, 25e9}},
                    .costs = {.message = 1e-7, .reduced_byte = 1e-10, .copied_byte = 2e-10}},
          .cluster = "alps",
          .measured = 1'790'000'000,
          .hosts = {"n1", "n2", "n3", "n4"},
          .tiers = {{0, 0, 1, 1}},
          .collectives = {{Collective::kAllGather, "bruck", 4096, 4, 1.5e-5}}};
}

TEST(StoredRates, AreReadAsTheyWereWritten) {
  const StoredRates written = measured();
  const std::string text = write_network_rates(written);
  const StoredRates read = read_network_rates(text, "rates.json");
  EXPECT_EQ(read.rates.distances, written.rates.distances);
  EXPECT_EQ(read.rates.costs.message, 1e-7);
  EXPECT_EQ(read.rates.costs.reduced_byte, 1e-10);
  EXPECT_EQ(read.rates.costs.copied_byte, 2e-10);
  EXPECT_EQ(read.cluster, "alps");
  EXPECT_EQ(read.measured, written.measured);
  EXPECT_EQ(read.hosts, written.hosts);
  EXPECT_EQ(read.tiers, written.tiers);
  EXPECT_EQ(read.collectives, written.collectives);
  EXPECT_EQ(write_network_rates(read), text);
}

TEST(StoredRates, WhatIsWrongIsSaidInOneLine) {
  const std::string text = write_network_rates(measured());
  const auto refusal = [](const std::string& damaged) {
    return message_of([&] { read_network_rates(damaged, "rates.json"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return refusal(changed.replace(at, from.size(), to));
  };
  // bad input: a file of network rates that is damaged, or another file | FILE: not a file of
  // network rates: WHAT; trireme topo probe writes one | 2
  for (const std::string& message :
       {refusal(""), refusal("[]"), refusal(text.substr(0, text.size() / 2)),
        with("network rates", "net"), with("\"version\": 1", "\"version\": 2"),
        with("\"flow\": 12000000000", "\"flow\": -1"), with("\"flow\": 12000000000", "\"flow\": 0"),
        with("\"latency\": 2e-06", "\"latency\": null"), with("\"n4\"", "4"),
        with("\"all_gather\"", "\"all_father\""), with(",\n  \"n4\"", ""),
        with("\"n3\",", "\"n3\",\"n3b\",")}) {
    EXPECT_TRUE(message.starts_with("rates.json: not a file of network rates: ")) << message;
    EXPECT_TRUE(message.ends_with("; trireme topo probe writes one")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(StoredRates, OfOtherHostsOrTiersAreStale) {
  EXPECT_EQ(why_stale(measured(), {"n4", "n1"}), "");
  EXPECT_EQ(why_stale(measured(), {"n4", "n5", "n6"}), "measured without n[5-6]");
  EXPECT_EQ(why_other_tiers(measured().rates, 2), "");
  EXPECT_EQ(why_other_tiers(measured().rates, 1), "rates for 3 distances, but the ranks have 2");
}

}  // namespace
}  // namespace trireme
