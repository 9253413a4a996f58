// The table that tells NCCL what to take, and the plugin that reads it, called as NCCL calls it.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/topology/nccl_table.h"

#include "support/temporary_folder.h"
#include "topology/nccl_tuner/tuner_interface.h"

namespace trireme {
namespace {

using nccl_tuner::Plugin;

constexpr const char* kTable = R"(trireme-nccl-table 1
# A table of a user.
communicator 16 4
compared tree ring
all_reduce 65536 tree/ll128 tree/ll tree/simple
all_reduce 1048576 tree/simple/8
all_reduce any ring/simple
all_gather any ring/ll

communicator 4 4
compared tree ring pat
reduce_scatter 1024 pat/simple ring/ll
)";

std::vector<NcclTable> read(std::string_view text) {
  std::string problem;
  const auto tables = read_nccl_tables(text, problem);
  EXPECT_TRUE(tables) << problem;
  return tables.value_or(std::vector<NcclTable>());
}

std::string problem_of(std::string_view text) {
  std::string problem;
  return read_nccl_tables(text, problem) ? "accepted" : problem;
}

TEST(NcclTable, IsReadAsItIsWritten) {
  const std::vector<NcclTable> tables = read(kTable);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(read(write_nccl_tables(tables)), tables);
  const NcclTable* table = find_nccl_table(tables, 16, 4);
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rules.size(), 4u);
  EXPECT_EQ(table->rules[1].cells,
            (std::vector<NcclCell>{{NcclAlgorithm::kTree, NcclProtocol::kSimple, 8}}));
  EXPECT_EQ(table->rules[2].most_bytes, NcclRule::kAllSizes);
  EXPECT_EQ(find_nccl_table(tables, 16, 2), nullptr);
}

TEST(NcclTable, SaysWhatIsWrong) {
  const std::string head = "trireme-nccl-table 1\n", size = head + "communicator 4 2\n";
  EXPECT_EQ(problem_of(""), "empty");
  EXPECT_EQ(problem_of("\n# only a comment\n"), "empty");
  const std::string title = "line 1: the first line must be 'trireme-nccl-table 1'";
  EXPECT_EQ(problem_of("trireme-nccl-table 2\n"), title);
  EXPECT_EQ(problem_of(std::string("\0\0\0\0", 4)), title);
  EXPECT_EQ(problem_of(head + "all_reduce any ring/simple"),
            "line 2: rules come after a line 'communicator RANKS NODES'");
  for (const char* wrong :
       {"communicator 4", "communicator 4 5", "communicator 0 0", "communicator -4 2",
        "communicator 4 2 1", "communicator 99999999999999999999 1"}) {
    EXPECT_EQ(problem_of(head + wrong), "line 2: must be 'communicator RANKS NODES'") << wrong;
  }
  EXPECT_EQ(problem_of(size + "communicator 4 2"), "line 3: a second table of that size");
  EXPECT_EQ(problem_of(size + "compared torus"), "line 3: must be 'compared ALGORITHM...'");
  for (const char* wrong : {"all_reduce any", "all_reduce", "scan any ring/ll",
                            "all_reduce -1 ring/ll", "all_reduce 18446744073709551615 ring/ll"}) {
    EXPECT_EQ(problem_of(size + wrong),
              "line 3: must be 'COLLECTIVE BYTES ALGORITHM/PROTOCOL[/CHANNELS]...'")
        << wrong;
  }
  for (const char* wrong : {"ring", "ring/", "/ll", "ring/ll/0", "ring/ll/65", "ring/ll/",
                            "ring/ll/8/8", "ring/ll/x", "7/0"}) {
    EXPECT_EQ(problem_of(size + "all_reduce any " + wrong),
              "line 3: not ALGORITHM/PROTOCOL or ALGORITHM/PROTOCOL/CHANNELS")
        << wrong;
  }
  EXPECT_EQ(problem_of(size + "reduce any ring/ll\nreduce 8 ring/ll"),
            "line 4: sizes of a collective must rise");
  EXPECT_EQ(problem_of(std::string(kMostNcclTableBytes + 1, '#')), "larger than 1 MiB");
}

// Whatever a damaged file holds, it is read or refused; what is read can be written and read again.
TEST(NcclTable, TakesAnyText) {
  std::mt19937 random(1);
  const auto below = [&random](std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
  };
  const std::string good = kTable;
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (std::size_t change = 0; change <= below(4); ++change) {
      const std::size_t at = below(text.size());
      switch (below(3)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, below(20));
          break;
        default:
          text.insert(at, good, below(good.size()), below(40));
      }
      if (text.empty()) text.push_back('x');
    }
    std::string problem;
    const auto tables = read_nccl_tables(text, problem);
    if (!tables) {
      ASSERT_FALSE(problem.empty());
      continue;
    }
    ++accepted;
    ASSERT_EQ(read(write_nccl_tables(*tables)), *tables) << text;
  }
  EXPECT_GT(accepted, 100);
}

// What NCCL hands to the plugin for a collective.
struct Call {
  explicit Call(int algorithms = kNcclAlgorithms, int protocols = kNcclProtocols,
                float time = 10.0f)
      : numbers{algorithms, protocols},
        times(static_cast<std::size_t>(algorithms) * static_cast<std::size_t>(protocols), time) {}

  float& time(NcclAlgorithm algorithm, NcclProtocol protocol) {
    return times.at(static_cast<std::size_t>(algorithm) * static_cast<std::size_t>(numbers[1]) +
                    static_cast<std::size_t>(protocol));
  }
  // Calls the plugin and returns its result. The table is a flat array, cast as NCCL does it.
  int make(const Plugin& plugin, void* context, int collective, std::size_t bytes) {
    return plugin.choose(context, collective, bytes, 1, reinterpret_cast<float**>(times.data()),
                         numbers[0], numbers[1], 0, &channels);
  }
  // "algorithm protocol" of the cell that NCCL takes, by number.
  std::string taken() const {
    int best = -1;
    for (int i = 0; i < static_cast<int>(times.size()); ++i) {
      const float now = times[static_cast<std::size_t>(i)];
      if (now >= 0 && (best < 0 || now < times[static_cast<std::size_t>(best)])) best = i;
    }
    if (best < 0) return "none";
    const int algorithm = best / numbers[1], protocol = best % numbers[1];
    if (algorithm >= kNcclAlgorithms || protocol >= kNcclProtocols) return "unknown";
    return std::string(name_of(static_cast<NcclAlgorithm>(algorithm))) + "/" +
           std::string(name_of(static_cast<NcclProtocol>(protocol)));
  }

  int numbers[2];
  std::vector<float> times;
  int channels = 0;
};

constexpr int kAllReduce = static_cast<int>(NcclCollective::kAllReduce);
constexpr int kAllGather = static_cast<int>(NcclCollective::kAllGather);
constexpr int kReduceScatter = static_cast<int>(NcclCollective::kReduceScatter);

std::vector<std::string> said;  // to NCCL's log
void log(int level, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  said.push_back(std::to_string(level) + " " + text);
}

class NcclTunerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(TRIREME_TUNER, RTLD_NOW | RTLD_LOCAL);  // as NCCL opens it
    ASSERT_NE(library_, nullptr) << dlerror();
    plugin_ = static_cast<const Plugin*>(dlsym(library_, "ncclTunerPlugin_v5"));
    ASSERT_NE(plugin_, nullptr);
    said.clear();
  }
  void TearDown() override {
    unsetenv("TRIREME_NCCL_TABLE");
    if (library_ != nullptr) dlclose(library_);
  }

  void use(std::string_view text) {
    const std::string path = (folder_.path() / "table").string();
    std::ofstream(path, std::ios::binary) << text;
    setenv("TRIREME_NCCL_TABLE", path.c_str(), 1);
  }
  void* context(std::size_t ranks, std::size_t nodes) {
    void* made = nullptr;
    EXPECT_EQ(plugin_->init(&made, 7, ranks, nodes, log, nullptr, nullptr), 0);
    return made;
  }
  std::string taken(void* context, int collective, std::size_t bytes) {
    Call call;
    EXPECT_EQ(call.make(*plugin_, context, collective, bytes), 0);
    return call.taken();
  }
  // What NCCL takes by itself, since all cells have the same time.
  static std::string own_choice() { return Call().taken(); }

  testing::TemporaryFolder folder_;
  void* library_ = nullptr;
  const Plugin* plugin_ = nullptr;
};

TEST_F(NcclTunerTest, ChoosesByCollectiveAndSize) {
  use(kTable);
  void* const large = context(16, 4);
  void* const small = context(4, 4);
  ASSERT_NE(large, nullptr);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(taken(large, kAllReduce, 0), "tree/ll128");
  EXPECT_EQ(taken(large, kAllReduce, 65536), "tree/ll128");
  EXPECT_EQ(taken(large, kAllReduce, 65537), "tree/simple");
  EXPECT_EQ(taken(large, kAllReduce, 1 << 20), "tree/simple");
  EXPECT_EQ(taken(large, kAllReduce, (1 << 20) + 1), "ring/simple");
  EXPECT_EQ(taken(large, kAllReduce, std::numeric_limits<std::size_t>::max()), "ring/simple");
  EXPECT_EQ(taken(large, kAllGather, 5), "ring/ll");
  EXPECT_EQ(taken(large, kReduceScatter, 5), own_choice());
  EXPECT_EQ(taken(small, kReduceScatter, 1024), "pat/simple");
  EXPECT_EQ(taken(small, kReduceScatter, 1025), own_choice());
  EXPECT_EQ(plugin_->finalize(large), 0);
  EXPECT_EQ(plugin_->finalize(small), 0);
}

TEST_F(NcclTunerTest, SetsTheChannelsOnlyWhereTheTableDoes) {
  use(kTable);
  void* const made = context(16, 4);
  Call with, without;
  with.make(*plugin_, made, kAllReduce, 100000);
  EXPECT_EQ(with.channels, 8);
  without.channels = 3;
  without.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(without.channels, 3);
  // The cell is not available, so its number of channels does not count either.
  Call missing;
  missing.time(NcclAlgorithm::kTree, NcclProtocol::kSimple) = -1.0f;
  missing.make(*plugin_, made, kAllReduce, 100000);
  EXPECT_EQ(missing.channels, 0);
  EXPECT_EQ(
      plugin_->choose(made, kAllReduce, 100000, 1, reinterpret_cast<float**>(Call().times.data()),
                      kNcclAlgorithms, kNcclProtocols, 0, nullptr),
      0);
  plugin_->finalize(made);
}

TEST_F(NcclTunerTest, RevivesNothing) {
  use(kTable);
  void* const made = context(16, 4);
  Call call;
  call.time(NcclAlgorithm::kTree, NcclProtocol::kLl128) = -1.0f;
  call.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(call.taken(), "tree/ll");  // the second choice
  EXPECT_EQ(call.time(NcclAlgorithm::kTree, NcclProtocol::kLl128), -1.0f);
  for (const float none : {-1.0f, -0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    Call nothing(kNcclAlgorithms, kNcclProtocols, none);
    const std::vector<float> before = nothing.times;
    EXPECT_EQ(nothing.make(*plugin_, made, kAllReduce, 10), 0);
    EXPECT_EQ(nothing.taken(), "none");
  }
  // None of the cells of the rule is there: NCCL's choice stands.
  Call others;
  others.time(NcclAlgorithm::kTree, NcclProtocol::kLl) = -1.0f;
  others.time(NcclAlgorithm::kTree, NcclProtocol::kLl128) = -1.0f;
  others.time(NcclAlgorithm::kTree, NcclProtocol::kSimple) = -1.0f;
  const std::vector<float> before = others.times;
  EXPECT_EQ(others.make(*plugin_, made, kAllReduce, 10), 0);
  EXPECT_EQ(others.times, before);
  plugin_->finalize(made);
}

// What the table has not compared may be faster for reasons that it does not know.
TEST_F(NcclTunerTest, LeavesAloneWhatTheTableHasNotCompared) {
  use(kTable);
  void* const made = context(16, 4);
  Call call;
  call.time(NcclAlgorithm::kNvls, NcclProtocol::kSimple) = 1.0f;
  call.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(call.taken(), "nvls/simple");
  Call slower;
  slower.time(NcclAlgorithm::kNvls, NcclProtocol::kSimple) = 99.0f;
  slower.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(slower.taken(), "tree/ll128");
  plugin_->finalize(made);
}

TEST_F(NcclTunerTest, ANewerOrOlderNcclHasOtherNumbers) {
  use(kTable);
  void* const made = context(16, 4);
  Call wide(9, 5);  // with algorithms and protocols that nobody knows
  wide.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(wide.taken(), "tree/ll128");
  Call best_is_unknown(9, 5);
  best_is_unknown.times.at(8 * 5) = 1.0f;
  best_is_unknown.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(best_is_unknown.taken(), "unknown");
  Call narrow(1, 1);  // only tree/ll
  narrow.make(*plugin_, made, kAllReduce, 10);
  EXPECT_EQ(narrow.times, std::vector<float>{0.0f});
  Call without_ring(1, 3);
  without_ring.make(*plugin_, made, kAllReduce, std::size_t{1} << 30);
  EXPECT_EQ(without_ring.times, std::vector<float>(3, 10.0f));
  plugin_->finalize(made);
}

TEST_F(NcclTunerTest, SurvivesAnyArguments) {
  use(kTable);
  void* const made = context(16, 4);
  Call call;
  const std::vector<float> before = call.times;
  auto** const times = reinterpret_cast<float**>(call.times.data());
  for (const int collective : {-1, 5, 14, 1000000, std::numeric_limits<int>::min()}) {
    EXPECT_EQ(call.make(*plugin_, made, collective, 10), 0);
  }
  for (const auto& [algorithms, protocols] : {std::pair{0, 3}, {7, 0}, {-1, 3}, {7, -1}}) {
    EXPECT_EQ(plugin_->choose(made, kAllReduce, 10, 1, times, algorithms, protocols, 0, nullptr),
              0);
  }
  EXPECT_EQ(plugin_->choose(made, kAllReduce, 10, 1, nullptr, 7, 3, 0, &call.channels), 0);
  EXPECT_EQ(call.make(*plugin_, nullptr, kAllReduce, 10), 0);
  EXPECT_EQ(call.times, before);
  EXPECT_EQ(call.channels, 0);
  EXPECT_EQ(plugin_->init(nullptr, 0, 2, 2, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(plugin_->finalize(nullptr), 0);
  EXPECT_EQ(plugin_->finalize(made), 0);
}

// bad input: a NCCL table that is missing, damaged, too large or for other numbers of ranks and
// nodes, while the plugin runs | Trireme tuner: ...: line 1: the first line must be
// 'trireme-nccl-table 1'; NCCL chooses itself (in NCCL's log) | 0
TEST_F(NcclTunerTest, GoesOnWithoutATable) {
  const auto expect_none = [this](const std::string& words) {
    said.clear();
    void* const made = context(16, 4);
    EXPECT_EQ(made, nullptr);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find(words), std::string::npos) << said[0];
    EXPECT_EQ(taken(made, kAllReduce, 10), own_choice());
    EXPECT_EQ(plugin_->finalize(made), 0);
    void* quiet = nullptr;
    EXPECT_EQ(plugin_->init(&quiet, 7, 16, 4, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(quiet, nullptr);
  };
  unsetenv("TRIREME_NCCL_TABLE");
  expect_none("2 Trireme tuner: TRIREME_NCCL_TABLE is not set; NCCL chooses itself");
  setenv("TRIREME_NCCL_TABLE", "/nowhere/table", 1);
  expect_none("2 Trireme tuner: /nowhere/table: No such file or directory");
  setenv("TRIREME_NCCL_TABLE", "/", 1);
  expect_none("no regular file");
  const std::string pipe = (folder_.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  setenv("TRIREME_NCCL_TABLE", pipe.c_str(), 1);
  expect_none("no regular file");
  use("not a table");
  expect_none("table: line 1: the first line must be 'trireme-nccl-table 1'; NCCL chooses itself");
  use("");
  expect_none("table: empty");
  use(std::string(kMostNcclTableBytes * 2, '\n'));
  expect_none("table: larger than 1 MiB");
  use("trireme-nccl-table 1\ncommunicator 8 4\nall_reduce any ring/ll\n");
  expect_none("3 Trireme tuner: no table for 16 ranks on 4 nodes");
}

TEST_F(NcclTunerTest, ServesCommunicatorsOfSeveralThreads) {
  use(kTable);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([this, &count = wrong[thread]] {
      for (int round = 0; round < 200; ++round) {
        void* first = nullptr;
        void* second = nullptr;
        plugin_->init(&first, 1, 16, 4, nullptr, nullptr, nullptr);
        plugin_->init(&second, 2, 4, 4, nullptr, nullptr, nullptr);
        Call one, two;
        one.make(*plugin_, first, kAllReduce, 10);
        two.make(*plugin_, second, kReduceScatter, 10);
        count += one.taken() != "tree/ll128" || two.taken() != "pat/simple";
        plugin_->finalize(second);
        plugin_->finalize(first);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace trireme
