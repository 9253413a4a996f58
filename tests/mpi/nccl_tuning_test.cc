// What NCCL is told about its communicators: fields of its configuration, and the tuner's table. On
// a GPU and a NCCL that are scripted.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/topology/nccl_table.h"

#include "support/message_of.h"
#include "support/nccl_machine.h"
#include "topology/nccl_tuner/tuner_interface.h"

namespace trireme {
namespace {

using testing::all_ranks;
using testing::kLane;
using testing::Machine;
using testing::message_of;
using testing::runtime;

// A tuning whose fields differ from what NCCL would take.
NcclTuning tuned() {
  NcclTuning tuning;
  tuning.min_channels = 2;
  tuning.max_channels = 8;
  tuning.channels_per_peer = 4;
  tuning.nvls_channels = 16;
  tuning.policy = "zero";
  tuning.traffic_class = 106;
  tuning.collnet = true;
  tuning.network = "Socket";
  return tuning;
}

std::string text_of_table() {
  const char* path = std::getenv("TRIREME_NCCL_TABLE");
  if (path == nullptr) return "no table";
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class NcclTuningTest : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceCarrier> carrier(const NcclTuning& tuning) {
    DeviceCarrierParts parts = machine_.parts();
    parts.tuning = tuning;
    return make_nccl_carrier(parts, runtime().world(), hosts_);
  }
  bool last() const { return runtime().rank() == runtime().size() - 1; }
  std::string name_of_last() const {
    return "rank " + std::to_string(runtime().size() - 1) + " (node)";
  }

  Machine machine_{15};
  std::vector<std::string> hosts_ =
      std::vector<std::string>(static_cast<std::size_t>(runtime().size()), "node");
};

TEST_F(NcclTuningTest, HandsTheTuningToEveryCommunicator) {
  const auto made = carrier(tuned());
  for (const int round : {0, 1}) {
    machine_.nccl().forget_given();
    const auto comm = made->extend(runtime().group("tuned", all_ranks()), kLane + round);
    const NcclTuning& given = machine_.nccl().given();
    EXPECT_EQ(given.min_channels, 2);
    EXPECT_EQ(given.max_channels, 8);
    EXPECT_EQ(given.channels_per_peer, 4);
    EXPECT_EQ(given.nvls_channels, 16);
    EXPECT_EQ(given.policy, "zero");
    EXPECT_EQ(machine_.nccl().given_name(), "tuned");
    EXPECT_EQ(given.traffic_class, 106);
    EXPECT_EQ(given.collnet, true);
    EXPECT_EQ(given.network, "Socket");
  }
  EXPECT_EQ(std::getenv("NCCL_TUNER_PLUGIN"), nullptr);  // no plugin was asked for
}

// The parts of a gather are counted by rank, so NCCL has the order of the group.
TEST_F(NcclTuningTest, RanksHaveTheOrderOfTheGroup) {
  const auto made = carrier({});
  std::vector<int> ranks = all_ranks();
  std::ranges::reverse(ranks);
  const auto comm = made->extend(runtime().group("reversed", ranks), kLane);
  EXPECT_EQ(machine_.nccl().given_rank(), runtime().size() - 1 - runtime().rank());
}

// bad input: `nccl.channels_per_peer` with a NCCL that is too old for it | rank 2 (...):
// nccl.channels_per_peer needs NCCL 2.28.0 or newer, but this is 2.27.3: leave it out | 2
TEST_F(NcclTuningTest, RefusesFieldsThatNcclLacks) {
  machine_.nccl().reported_version = 22703;
  const auto start = [&](const NcclTuning& tuning) {
    return message_of<ConfigError>([&] { carrier(tuning); });
  };
  EXPECT_EQ(start(tuned()),
            "rank 0 (node): nccl.channels_per_peer needs NCCL 2.28.0 or newer, but this is "
            "2.27.3: leave it out");
  NcclTuning tuning = tuned();
  tuning.channels_per_peer = std::nullopt;
  EXPECT_EQ(start(tuning),
            "rank 0 (node): nccl.policy needs NCCL 2.28.0 or newer, but this is 2.27.3: leave it "
            "out");
  tuning.policy = "efficiency";
  EXPECT_EQ(start(tuning), "no error");
}

// NCCL finds the plugin, and the plugin finds the table of the communicator that starts.
TEST_F(NcclTuningTest, WritesTheTableOfEachCommunicator) {
  NcclTuning tuning;
  tuning.plugin = TRIREME_TUNER;
  int asked = 0;
  tuning.table = [&asked](const std::string& name, const std::vector<int>& ranks) {
    ++asked;
    return name + " " + std::to_string(ranks.front()) + std::string(ranks.size(), '.');
  };
  {
    const auto made = carrier(tuning);
    ASSERT_NE(std::getenv("NCCL_TUNER_PLUGIN"), nullptr);
    EXPECT_STREQ(std::getenv("NCCL_TUNER_PLUGIN"), TRIREME_TUNER);
    const std::string dots(all_ranks().size(), '.');
    machine_.nccl().on_init = [&] { EXPECT_EQ(text_of_table(), "the long first name 0" + dots); };
    const auto one = made->extend(runtime().group("the long first name", all_ranks()), kLane);
    machine_.nccl().on_init = [&] { EXPECT_EQ(text_of_table(), "second 0" + dots); };
    const auto two = made->extend(runtime().group("second", all_ranks()), kLane + 1);
  }
  machine_.nccl().on_init = nullptr;
  EXPECT_EQ(asked, runtime().rank() == 0 ? 2 : 0);
  EXPECT_EQ(std::getenv("NCCL_TUNER_PLUGIN"), nullptr);
  EXPECT_EQ(text_of_table(), "no table");
}

// The plugin itself reads the table where the program has put it.
TEST_F(NcclTuningTest, ThePluginReadsTheTable) {
  NcclTuning tuning;
  tuning.plugin = TRIREME_TUNER;
  tuning.table = [](const std::string&, const std::vector<int>& ranks) {
    return write_nccl_tables({{ranks.size(),
                               1,
                               {NcclAlgorithm::kTree},
                               {{NcclCollective::kAllReduce,
                                 NcclRule::kAllSizes,
                                 {{NcclAlgorithm::kTree, NcclProtocol::kLl128, 3}}}}}});
  };
  const auto made = carrier(tuning);
  int starts = 0;
  machine_.nccl().on_init = [&starts] {
    ++starts;
    void* const library = dlopen(std::getenv("NCCL_TUNER_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto* plugin =
        static_cast<const nccl_tuner::Plugin*>(dlsym(library, "ncclTunerPlugin_v5"));
    void* context = nullptr;
    plugin->init(&context, 0, all_ranks().size(), 1, nullptr, nullptr, nullptr);
    std::array<float, 3> times{3.0f, 2.0f, 1.0f};  // of the tree
    int channels = 0;
    plugin->choose(context, static_cast<int>(NcclCollective::kAllReduce), 1 << 20, 1,
                   reinterpret_cast<float**>(times.data()), 1, 3, 0, &channels);
    plugin->finalize(context);
    dlclose(library);
    EXPECT_EQ(times, (std::array<float, 3>{3.0f, 0.0f, 1.0f}));
    EXPECT_EQ(channels, 3);
  };
  made->extend(runtime().group("tuned", all_ranks()), kLane);
  EXPECT_EQ(starts, 1);
}

// bad input: NCCL's tuner plugin is missing on a node, another one is in the environment, or NCCL
// is too old for it | NCCL chooses its algorithms itself, without our tuner: rank 2 (...): ... | 0
TEST_F(NcclTuningTest, GoesOnWithoutATunerWhereOneRankHasNone) {
  NcclTuning tuning;
  tuning.plugin = TRIREME_TUNER;
  tuning.table = [](const std::string&, const std::vector<int>&) { return std::string(); };
  const auto said = [&](const NcclTuning& asked) {
    ::testing::internal::CaptureStderr();
    const auto made = carrier(asked);
    const std::string text = ::testing::internal::GetCapturedStderr();
    if (std::getenv("NCCL_TUNER_PLUGIN") != nullptr) {
      EXPECT_STREQ(std::getenv("NCCL_TUNER_PLUGIN"), "another");
    }
    EXPECT_EQ(std::getenv("TRIREME_NCCL_TABLE"), nullptr);
    EXPECT_EQ(text.empty(), runtime().rank() != 0);
    return text;
  };
  const std::string head =
      "trireme: NCCL chooses its algorithms itself, without our tuner: " + name_of_last() + ": ";
  NcclTuning missing = tuning;
  if (last()) missing.plugin = "/nowhere/libtrireme_tuner.so";
  const std::string where = said(missing);
  if (!where.empty()) {
    EXPECT_EQ(where.find(head), 0u) << where;
    EXPECT_NE(where.find("/nowhere/libtrireme_tuner.so"), std::string::npos) << where;
  }
  if (last()) setenv("NCCL_TUNER_PLUGIN", "another", 1);
  const std::string other = said(tuning);
  if (!other.empty()) {
    EXPECT_EQ(other, head + "NCCL_TUNER_PLUGIN=another is in the environment\n");
  }
  unsetenv("NCCL_TUNER_PLUGIN");
  machine_.nccl().reported_version = 22703;
  const std::string old = said(tuning);
  if (!old.empty()) {
    EXPECT_EQ(old,
              "trireme: NCCL chooses its algorithms itself, without our tuner: rank 0 (node): NCCL "
              "2.27.3 is older than 2.28.0\n");
  }
}

}  // namespace
}  // namespace trireme
