// The protocol of several jobs on a file system, and its heartbeats.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/island_member.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;
using Linked = IslandFolder::Linked;

TEST(SystemIslandFolderTest, LinksANameOnce) {
  const TemporaryFolder temporary;
  const std::string run = temporary.path() / "run";
  SystemIslandFolder folder(run, "a", "a.1"), other(run, "b", "b.1");
  EXPECT_EQ(folder.read("outer/outer-000000.json"), std::nullopt);
  EXPECT_EQ(folder.read("islands/c/heartbeat"), std::nullopt);  // nor is its folder there
  folder.write_private("outer/mine", "first");
  other.write_private("outer/theirs", "second");
  EXPECT_EQ(folder.link_new("outer/mine", "outer/outer-000000.json"), Linked::kNew);
  EXPECT_EQ(other.link_new("outer/theirs", "outer/outer-000000.json"), Linked::kExists);
  EXPECT_EQ(folder.link_new("outer/mine", "outer/outer-000000.json"), Linked::kExists);
  EXPECT_EQ(other.read("outer/outer-000000.json"), "first");
  folder.remove("outer/mine");
  folder.remove("outer/mine");
  EXPECT_EQ(folder.link_new("outer/mine", "outer/outer-000001.json"), Linked::kGone);
  other.replace("islands/b/heartbeat", "1 1");
  other.replace("islands/b/heartbeat", "1 2");
  EXPECT_EQ(folder.read("islands/b/heartbeat"), "1 2");
  EXPECT_EQ(folder.list("islands"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(folder.list("nowhere"), std::vector<std::string>());
}

TEST(SystemIslandFolderTest, AFolderThatVanishesIsNoEmptyOne) {
  const TemporaryFolder temporary;
  const std::string run = temporary.path() / "run";
  SystemIslandFolder folder(run, "a", "a.1");
  fs::remove_all(run);
  EXPECT_THROW(folder.read("outer/outer-000000.json"), RunFolderError);
  EXPECT_THROW(folder.read("islands/a/heartbeat"), RunFolderError);
  EXPECT_THROW(folder.write_private("outer/mine", ""), RunFolderError);
}

TEST(HeartbeatWatchTest, OnlySilenceThatWasWatchedCounts) {
  constexpr double kSilence = 40;
  HeartbeatWatch watch;
  watch.look("3 1\n", 1000, kSilence);
  EXPECT_TRUE(watch.living(kSilence));
  EXPECT_FALSE(watch.seen_to_beat());
  EXPECT_EQ(watch.incarnation(), 3);
  watch.look("3 1\n", 9000, kSilence);  // a gap, of which 10 s count
  EXPECT_TRUE(watch.living(kSilence));
  for (int i = 1; i <= 29; ++i) watch.look("3 1\n", 9000 + i, kSilence);
  EXPECT_TRUE(watch.living(kSilence));
  watch.look("3 1\n", 9030, kSilence);
  EXPECT_FALSE(watch.living(kSilence));
  watch.look("3 2\n", 9031, kSilence);
  EXPECT_TRUE(watch.living(kSilence));
  EXPECT_TRUE(watch.seen_to_beat());
  watch.look("3 left\n", 9032, kSilence);
  EXPECT_FALSE(watch.living(kSilence));
  EXPECT_FALSE(watch.seen_to_beat());
  watch.look("4 1\n", 9033, kSilence);
  EXPECT_TRUE(watch.living(kSilence));
  EXPECT_EQ(watch.incarnation(), 4);
}

// States and gradients are numbers: a state is the sum of all gradients.
class SumWork : public IslandWork {
 public:
  explicit SumWork(IslandFolder& folder) : folder_(folder) {}
  std::string first_state(const std::string& file) override { return write(file, 0); }
  Made next_state(const OuterRecord& previous, const std::vector<Settled>& settled,
                  const std::string& file) override {
    const auto before = folder_.read(previous.state.name);
    if (!before) return {.checksum = "", .absent = previous.state.name};
    int sum = std::stoi(*before);
    for (const Settled& one : settled) {
      const auto gradient = folder_.read(one.delivery.gradient.name);
      if (!gradient) return {};
      sum += std::stoi(*gradient);
    }
    return {write(file, sum)};
  }
  bool load(const OuterRecord& record) override {
    const auto text = folder_.read(record.state.name);
    if (text) state = std::stoi(*text);
    return text.has_value();
  }
  std::string write(const std::string& file, int value) {
    folder_.write_private(file, std::to_string(value));
    return std::to_string(value);
  }
  int state = -1;

 private:
  IslandFolder& folder_;
};

IslandMember::Options member(const std::string& name, const std::string& config = "digest") {
  IslandMember::Options options;
  options.name = {name, 1};
  options.config = config;
  options.rules.steps = 2;
  options.rules.samples = 8;
  options.rules.patience = 20;
  options.rules.poll = 0.01;
  return options;
}

TEST(SystemIslandFolderTest, AMemberSaysWhichFileTheNextStateLacks) {
  const TemporaryFolder temporary;
  const std::string run = temporary.path() / "run";
  SystemIslandFolder folder(run, "a", "a.1");
  int looks = 0;
  SystemIslandClock clock([&] {
    if (++looks == 4) throw std::runtime_error("enough");
  });
  SumWork work(folder);
  IslandMember island(folder, clock, work, member("a"));
  Delivery delivery;
  const std::string state = island.next_start()->state.name;
  delivery.steps = island.deal().steps;
  delivery.targets = 16;
  delivery.gradient = {island.gradient_file(), ""};
  work.write(delivery.gradient.name, 1);
  island.deliver(delivery);
  folder.remove(state);
  looks = 0;
  EXPECT_THROW(island.next_start(), std::runtime_error);
  EXPECT_EQ(island.waits_for(),
            run + "/" + state + ", which a record or a delivery names, is not there");
}

TEST(SystemIslandFolderTest, MembersCarryARunTogether) {
  constexpr int kMembers = 3;
  const TemporaryFolder temporary;
  const std::string run = temporary.path() / "run";
  std::atomic<int> given{0};
  std::vector<int> ends(kMembers, -1);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kMembers; ++i) {
      threads.emplace_back([&, i] {
        const std::string name(1, static_cast<char>('a' + i));
        SystemIslandFolder folder(run, name, name + ".1");
        SystemIslandClock clock;
        SumWork work(folder);
        const HeartbeatThread heart(folder, {name, 1}, 0.1);
        IslandMember island(folder, clock, work, member(name));
        // Until a step has counted all of them.
        while (island.next_start()->settled.size() < kMembers) {
          Delivery delivery;
          delivery.steps = island.deal().steps;
          delivery.targets = 16;
          delivery.gradient = {island.gradient_file(), ""};
          work.write(delivery.gradient.name, 1 << i);
          given += 1 << i;
          island.deliver(delivery);
        }
        ends[static_cast<std::size_t>(i)] = work.state;
      });
    }
  }
  // All that was delivered is in the state: a step closes when all the living have delivered.
  EXPECT_EQ(ends, std::vector<int>(kMembers, given));
  SystemIslandFolder folder(run, "a", "a.2");
  int states = 0, records = 0;
  for (const std::string& name : folder.list("outer")) {
    states += name.starts_with("state-");
    records += name.starts_with("outer-");
  }
  EXPECT_LE(states, 2);  // older ones are gone, records are not
  const std::string newest = fmt::format("outer/outer-{:06}.json", records - 1);
  EXPECT_TRUE(folder.read(newest)) << newest;
  EXPECT_EQ(folder.read("islands/a/heartbeat"), "1 left\n");

  SystemIslandClock clock;
  SumWork work(folder);
  IslandMember other(folder, clock, work, member("d", "another"));
  EXPECT_EQ(message_of<RunFolderError>([&] { other.next_start(); }),
            run + "/" + newest +
                ": the run in this folder has another configuration (digest) "
                "than this job (another): give the job another folder, or the configuration of the "
                "run");
  std::ofstream(run + "/" + newest, std::ios::app) << " ";
  IslandMember late(folder, clock, work, member("d"));
  EXPECT_EQ(message_of<RunFolderError>([&] { late.next_start(); }),
            run + "/" + newest + ": not the record of an outer step: its checksum does not fit");
  EXPECT_EQ(message_of<RunFolderError>([&] { IslandMember(folder, clock, work, member("../x")); }),
            "../x: no name of an island, which has letters, digits, -, _ and . alone");
}

}  // namespace
}  // namespace trireme
