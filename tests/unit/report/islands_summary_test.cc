// Who was there, who led, and what counts, of a run that several jobs carry.
#include "trireme/report/islands_summary.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/report/islands_page.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kStart = 1'700'000'000;

// A run of two members: "a" makes every state; "b" is late once, and dropped once.
class IslandsSummaryTest : public ::testing::Test {
 protected:
  IslandsSummaryTest() {
    record({});
    record({settled("a", 0, 10, 5), settled("b", 0, 10, 5)});
    record({settled("a", 1, 10, 5)});
    record({settled("a", 2, 10, 5), settled("b", 1, 10, 2.5)});
    record({settled("a", 3, 10, 5), settled("b", 3, 4, 0, "not finite")});
    OuterMember open{.member = {"b", 2}, .deals = {{.base = 4, .steps = 10, .samples = {}}}};
    facts_.records.back().members = {open};
    facts_.now = kStart + 100;
    MemberFacts a{.name = "a", .host = "n1"};
    a.alive = true;
    a.last_sign = facts_.now;
    a.events = {event(1, "start", 1, "", "n1: 0-3 8, n2: 4-7"),
                event(1, "joined"),
                event(1, "outer", 0, "0, led"),
                event(12, "delivered", 0.5, "0, 10 steps"),
                event(14, "outer", 2, "1, led"),
                event(25, "delivered", 0.5, "1, 10 steps"),
                event(26, "outer", 1, "2"),
                event(37, "delivered", 0.5, "2, 10 steps"),
                event(38, "outer", 1, "3, led"),
                event(49, "delivered", 0.5, "3, 10 steps"),
                event(50, "outer", 1, "4, led")};
    for (int i = 0; i < 43; ++i) a.step_times.push_back(kStart + 2 + i / 10 * 12 + i % 10);
    MemberFacts b{.name = "b", .host = "n3"};
    b.state = "stopped at step 34, requeued";
    b.left = true;
    b.events = {event(3, "start", 0, "", ""),
                event(3, "outer", 0, "0"),
                event(13, "delivered", 0, "0, 10 steps"),
                event(14, "outer", 1, "1"),
                event(36, "delivered", 0, "1, 10 steps"),
                event(36, "stop"),
                event(39, "discard", 0, "steps 9 to 10 are not kept"),
                event(40, "start", 0, "", "n3: 0"),
                event(40, "outer", 0, "3"),
                event(44, "delivered", 0, "3, 4 steps"),
                event(44, "stop"),
                event(45, "requeue", 0, "stopped at step 34, requeued")};
    for (int i = 0; i < 22; ++i) b.step_times.push_back(kStart + 4 + i);
    facts_.members = {a, b};
  }

  static RunEvent event(double second, const std::string& kind, double seconds = 0,
                        const std::string& detail = "", const std::string& places = "") {
    RunEvent event{.time = kStart + second, .kind = kind, .seconds = seconds, .detail = detail};
    if (kind == "discard") event.until = kStart + second;
    event.places = places;
    return event;
  }
  static Settled settled(const std::string& name, std::int64_t base, std::int64_t steps,
                         double weight, const std::string& why = "") {
    Settled one;
    one.delivery.member = {name, 1};
    one.delivery.base = base;
    one.delivery.steps = steps;
    one.weight = weight;
    one.why = why;
    return one;
  }
  void record(std::vector<Settled> settled) {
    OuterRecord record;
    record.number = std::ssize(facts_.records);
    record.updates = record.number;
    record.leader = {"a", 1};
    record.settled = std::move(settled);
    facts_.records.push_back(std::move(record));
  }
  MemberSummary of(std::size_t member) const { return summary_of(facts_).members.at(member); }

  IslandsFacts facts_;
};

TEST_F(IslandsSummaryTest, CountsWhatRecordsCount) {
  const IslandsSummary all = summary_of(facts_);
  EXPECT_EQ(all.outer, 4);
  EXPECT_EQ(all.updates, 4);
  EXPECT_EQ(all.leader, "a");
  EXPECT_EQ(all.counted, 60);
  EXPECT_EQ(all.begun, 43 + 22 + 2);  // two of which a later start has done again
  EXPECT_EQ(all.under_way, 2);
  EXPECT_NEAR(all.goodput(), 60.0 / 67.0, 1e-12);
  EXPECT_EQ(goodput_text(all),
            "89.6 %: 60 of 67 inner steps that were begun count, 2 are under way");
  EXPECT_EQ(all.begin, kStart);
  EXPECT_EQ(all.end, kStart + 100);
}

TEST_F(IslandsSummaryTest, KnowsWhoLedAndWhoWasLate) {
  const MemberSummary a = of(0), b = of(1);
  ASSERT_EQ(a.leads.size(), 4);
  EXPECT_EQ(a.leads.back().outer, 4);
  EXPECT_TRUE(b.leads.empty());
  ASSERT_EQ(b.deliveries.size(), 3);
  EXPECT_EQ(b.deliveries[0].late, 0);
  EXPECT_TRUE(b.deliveries[0].counted);
  EXPECT_EQ(b.deliveries[1].late, 1);
  EXPECT_TRUE(b.deliveries[1].counted);
  EXPECT_FALSE(b.deliveries[2].counted);
  EXPECT_EQ(b.deliveries[2].why, "not finite");
  EXPECT_EQ(b.counted, 20);
}

TEST_F(IslandsSummaryTest, KnowsWhoIsThere) {
  EXPECT_EQ(of(0).state_text, "working");
  EXPECT_EQ(of(0).nodes, "n1, n2");
  EXPECT_EQ(of(0).outer, 4);
  EXPECT_EQ(of(1).state_text, "left: stopped at step 34, requeued");
  EXPECT_EQ(of(1).nodes, "n3");
  EXPECT_EQ(of(0).there, (std::vector<MemberSpan>{{kStart, kStart + 100}}));
  EXPECT_EQ(of(1).there,
            (std::vector<MemberSpan>{{kStart + 3, kStart + 36}, {kStart + 40, kStart + 44}}));
  EXPECT_EQ(of(0).node_seconds, 200);
  EXPECT_EQ(of(1).node_seconds, 37);
  EXPECT_EQ(of(0).waited.size(), 4);
  EXPECT_NEAR(of(0).steps_per_second, 1, 1e-9);  // waits are not part of it

  MemberFacts& a = facts_.members[0];
  a.events.push_back(event(61, "delivered", 0, "4, 10 steps"));
  EXPECT_EQ(of(0).state_text, "waiting for outer state 5");
  EXPECT_EQ(of(0).waited.back(), (MemberSpan{kStart + 61, kStart + 100}));
  a.events.push_back(event(62, "start", 0, "", "n1: 0"));
  EXPECT_EQ(of(0).state_text, "joining");
  a.alive = false;
  a.last_sign = kStart + 70;
  a.state = "silent";
  EXPECT_EQ(of(0).state_text, "dead: silent");
  EXPECT_EQ(of(0).there.back(), (MemberSpan{kStart + 62, kStart + 70}));
  a.left = true;
  facts_.done = true;
  EXPECT_EQ(of(0).state_text, "finished");  // it came when the run was done
  facts_.done = false;
  EXPECT_EQ(of(0).state_text, "left: silent");
  a.events.push_back(event(71, "finish"));
  EXPECT_EQ(of(0).state_text, "finished");
}

TEST_F(IslandsSummaryTest, TellsWhatIsUnderWay) {
  facts_.members[0].step_times.push_back(kStart + 60);  // since it took state 4
  EXPECT_EQ(summary_of(facts_).under_way, 3);
  facts_.members[1].events.push_back(event(90, "start"));
  facts_.members[1].events.push_back(event(95, "delivered", 0, "4, 7 steps"));
  EXPECT_EQ(of(1).under_way, 7);  // the last record expects it
  EXPECT_FALSE(of(1).deliveries.back().settled);
  facts_.records.back().members.clear();
  EXPECT_EQ(of(1).under_way, 0);
}

TEST_F(IslandsSummaryTest, FilesMayHoldAnything) {
  MemberFacts& b = facts_.members[1];
  const std::int64_t begun = of(1).begun;
  for (const char* detail : {"", "x", "steps 9 to", "steps 9 to 3 are", "step x", "-1, 2 steps",
                             "99999999999999999999, 1 steps", "7"}) {
    b.events.push_back(event(46, "discard", 0, detail));
    b.events.push_back(event(46, "delivered", 0, detail));
    b.events.push_back(event(46, "outer", -3, detail));
  }
  EXPECT_EQ(of(1).begun, begun);
  EXPECT_EQ(of(1).deliveries.size(), 3);
  facts_.records[1].settled[0].delivery.base = 1'000'000;
  EXPECT_EQ(summary_of(facts_).counted, 60);
  EXPECT_EQ(summary_of({}).members.size(), 0);
  EXPECT_TRUE(std::isnan(summary_of({}).goodput()));
  EXPECT_EQ(goodput_text(summary_of({})), "");
}

// The folder as members write it.
TEST_F(IslandsSummaryTest, AreReadFromTheFolder) {
  const testing::TemporaryFolder scratch;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((scratch.path() / name).parent_path());
    std::ofstream(scratch.path() / name) << text;
  };
  const std::string run = scratch.path().string();
  EXPECT_FALSE(IslandsHistory::is_islands(run));
  write("config.ini", "[run]\nsteps = 40\n[sync]\nevery = 10\n");
  for (const OuterRecord& record : facts_.records) {
    write(fmt::format("outer/outer-{:06}.json", record.number), record.text());
  }
  for (const char* member : {"island-10", "island-2"}) {
    const std::string folder = fmt::format("islands/{}/", member);
    write(folder + "config.ini", "[run]\nsteps = 40\n");
    write(folder + "metrics.jsonl",
          "{\"step\":1,\"time\":1700000004,\"loss\":3.5,\"step_s\":1}\n"
          "{\"step\":2,\"time\":1700000005,\"loss\":3.25,\"step_s\":1}\n");
    write(
        folder + "events.jsonl",
        "{\"time\":1700000003,\"step\":0,\"event\":\"start\",\"places\":\"n7: 0\"}\n"
        "{\"time\":1700000004,\"step\":0,\"event\":\"outer\",\"seconds\":1,\"detail\":\"0, led\"}\n"
        "{\"time\":1700000006,\"step\":2,\"event\":\"delivered\",\"detail\":\"0, 2 steps\"}\n"
        "{\"time\":1700000007,\"step\":2,\"event\":\"finish\"}\n");
  }
  write("islands/broken/note", "this is no run folder\n");
  write("islands/.hidden", "");
  EXPECT_TRUE(IslandsHistory::is_islands(run));
  IslandsHistory history(run);
  EXPECT_EQ(history.state_text(),
            "outer state 4, by a, 4 of 4 updates; 3 members: 1 dead, 2 finished");
  EXPECT_TRUE(history.finished());
  ASSERT_EQ(history.summary().members.size(), 3);
  EXPECT_EQ(history.summary().members[0].state_text.find("dead: damaged: "), 0);
  EXPECT_EQ(history.summary().members[1].name, "island-2");
  EXPECT_EQ(history.summary().members[2].name, "island-10");
  EXPECT_EQ(history.summary().members[2].nodes, "n7");
  EXPECT_NE(history.history("island-2"), nullptr);
  EXPECT_EQ(history.history("broken"), nullptr);

  const std::string page = page_of_islands(history, run);
  for (const char* words :
       {"Members over time", "<a href=\"islands/island-2/report.html\">island-2",
        "island-2 made outer state 0", "b (1 late)", "b: not finite", "Training loss", "node-hours",
        "ran for 4 s"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(page.find("http-equiv"), std::string::npos);  // nobody is at work
  EXPECT_NE(picture_of_islands(history).find("Training loss"), std::string::npos);

  write("outer/outer-000005.json", "{}");
  history.update();
  EXPECT_EQ(history.fault().find("outer/outer-000005.json: damaged: "), 0) << history.fault();
  EXPECT_EQ(history.records().size(), 5);
  fs::remove_all(scratch.path() / "islands");
  EXPECT_THROW(history.update(), RunFolderError);
}

}  // namespace
}  // namespace trireme
