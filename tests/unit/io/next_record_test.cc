// What an outer step counts, and what it deals.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/io/outer_record.h"

namespace trireme {
namespace {

IslandRules rules() {
  IslandRules rules;
  rules.steps = 10;
  rules.samples = 4;
  rules.patience = 60;
  return rules;
}

// A run of a, b and c after the first record, with 40 samples for each of them.
OuterRecord three() {
  const OuterRecord first = first_record("digest", {"a", 1}, rules());
  const auto next = next_record(
      first, {{{"a", 1}, false, {}, {}}, {{"b", 1}, true, {}, {}}, {{"c", 1}, true, {}, {}}}, 0,
      rules());
  OuterRecord record = *next.record;
  record.members.insert(record.members.begin(), {{"a", 1}, 0, {{1, 10, {{80, 120}}}}});
  record.next_sample = 120;
  return record;
}

Delivery from(const OuterRecord& base, const std::string& name) {
  Delivery delivery;
  delivery.member = {name, 1};
  delivery.base = base.number;
  delivery.base_checksum = base.checksum();
  delivery.steps = 10;
  delivery.targets = 1000;
  delivery.gradient = {"islands/" + name + "/gradient", "sum"};
  return delivery;
}

MemberSeen delivered(const Delivery& delivery) {
  return {delivery.member, true, {delivery}, {}};
}
MemberSeen silent(const std::string& name, bool living = true) {
  return {{name, 1}, living, {}, {}};
}

TEST(NextRecordTest, TheFirstDealsToItsFounder) {
  const OuterRecord first = first_record("digest", {"a", 3}, rules());
  EXPECT_EQ(first.number, 0);
  EXPECT_EQ(first.next_sample, 40);
  ASSERT_NE(first.find("a"), nullptr);
  EXPECT_EQ(*first.find("a")->deal_of(0), (Deal{0, 10, {{0, 40}}}));
  EXPECT_EQ(first.find("b"), nullptr);
}

TEST(NextRecordTest, ClosesWhenAllTheLivingHaveDelivered) {
  const OuterRecord base = three();
  const auto waits =
      next_record(base, {delivered(from(base, "c")), delivered(from(base, "b"))}, 59, rules());
  EXPECT_FALSE(waits.record);
  EXPECT_EQ(waits.waits_for, "deliveries: 2 have come, 1 are missing");
  const auto next = next_record(
      base, {delivered(from(base, "c")), delivered(from(base, "b")), delivered(from(base, "a"))}, 0,
      rules());
  ASSERT_TRUE(next.record);
  EXPECT_EQ(next.record->number, 2);
  EXPECT_EQ(next.record->updates, 1);
  ASSERT_EQ(next.record->ancestors.size(), 2u);
  EXPECT_EQ(next.record->ancestors[0].checksum, base.checksum());
  ASSERT_EQ(next.record->settled.size(), 3u);
  EXPECT_EQ(next.record->settled[0].delivery.member.name, "a");
  EXPECT_EQ(next.record->settled[2].delivery.member.name, "c");
  EXPECT_EQ(next.record->settled[0].weight, 1000);
  EXPECT_EQ(next.record->settled[0].samples, (SampleRanges{{80, 120}}));
  for (const OuterMember& member : next.record->members) {
    EXPECT_EQ(member.deals.size(), 1u);
    EXPECT_EQ(count_of(member.deals[0].samples), 40);
  }
  EXPECT_EQ(next.record->next_sample, 240);
  EXPECT_TRUE(next.record->back.empty());
}

TEST(NextRecordTest, DoesWithoutTheSlowAfterThePatienceAndNeverBelowTheQuorum) {
  const OuterRecord base = three();
  IslandRules two = rules();
  two.quorum = 2;
  const std::vector<MemberSeen> one = {delivered(from(base, "a"))};
  EXPECT_FALSE(next_record(base, one, 1e6, two).record);
  EXPECT_FALSE(next_record(base, one, 59, rules()).record);
  const auto next = next_record(base, one, 60, rules());
  ASSERT_TRUE(next.record);
  EXPECT_EQ(next.record->settled.size(), 1u);
  // Those who are slow keep what they work on, and have a deal of the new state as well.
  const OuterMember* const slow = next.record->find("b");
  ASSERT_EQ(slow->deals.size(), 2u);
  EXPECT_EQ(slow->deals[0], *base.find("b")->deal_of(1));
  EXPECT_EQ(slow->deals[1].base, 2);

  const auto below = next_record(
      base, {delivered(from(base, "a")), silent("b", false), silent("c", false)}, 1e6, two);
  EXPECT_FALSE(below.record);
  EXPECT_EQ(below.waits_for, "members: 1 of a quorum of 2 are there");
}

TEST(NextRecordTest, WorkThatIsLateCountsLessByTheUpdatesThatItMissed) {
  const OuterRecord base = three();
  const OuterRecord second = *next_record(base, {delivered(from(base, "a"))}, 60, rules()).record;
  const OuterRecord third =
      *next_record(second, {delivered(from(second, "a"))}, 60, rules()).record;
  MemberSeen late = delivered(from(base, "b"));
  late.delivered.push_back(from(third, "b"));
  const auto next = next_record(third, {late}, 60, rules());
  ASSERT_EQ(next.record->settled.size(), 2u);
  EXPECT_EQ(next.record->settled[0].weight, 250);  // two updates
  EXPECT_EQ(next.record->settled[1].weight, 1000);

  IslandRules strict = rules();
  strict.stale = 0;
  const auto dropped = next_record(third, {late}, 60, strict);
  ASSERT_EQ(dropped.record->settled.size(), 2u);
  EXPECT_EQ(dropped.record->settled[0].weight, 0);
  EXPECT_EQ(dropped.record->settled[0].why, "it is late");
  EXPECT_EQ(dropped.record->settled[1].weight, 1000);
  // What it had is dealt again, first of all: a is the first in the order of names.
  EXPECT_EQ(dropped.record->find("a")->deals.back().samples, (SampleRanges{{0, 40}}));
}

TEST(NextRecordTest, DealsOfTheDeadGoBackAndAreDealtFirst) {
  const OuterRecord base = three();
  const auto next = next_record(
      base, {delivered(from(base, "a")), silent("b", false), delivered(from(base, "c"))}, 0,
      rules());
  ASSERT_TRUE(next.record);
  EXPECT_EQ(next.record->find("b"), nullptr);
  EXPECT_EQ(next.record->find("a")->deals[0].samples, base.find("b")->deals[0].samples);
  EXPECT_EQ(next.record->find("c")->deals[0].samples, (SampleRanges{{120, 160}}));

  // What somebody delivered before it died counts.
  MemberSeen last = delivered(from(base, "b"));
  last.living = false;
  const auto with =
      next_record(base, {delivered(from(base, "a")), last, delivered(from(base, "c"))}, 0, rules());
  EXPECT_EQ(with.record->settled.size(), 3u);
  EXPECT_EQ(with.record->find("b"), nullptr);
}

TEST(NextRecordTest, WhatWasNotUsedOfADealGoesBack) {
  const OuterRecord base = three();
  Delivery part = from(base, "a");
  part.steps = 7;
  const auto next = next_record(base, {delivered(part)}, 60, rules());
  EXPECT_EQ(next.record->settled[0].samples, (SampleRanges{{80, 108}}));
  EXPECT_EQ(next.record->find("a")->deals[0].samples, (SampleRanges{{108, 120}, {120, 148}}));
}

TEST(NextRecordTest, WhatIsNotFiniteIsUsedUpAndNotCounted) {
  const OuterRecord base = three();
  Delivery bad = from(base, "a");
  bad.finite = false;
  const auto next = next_record(base, {delivered(bad)}, 60, rules());
  EXPECT_EQ(next.record->settled[0].weight, 0);
  EXPECT_EQ(next.record->settled[0].why, "it is not finite");
  EXPECT_EQ(count_of(next.record->settled[0].samples), 40);
  EXPECT_EQ(next.record->updates, base.updates);
  EXPECT_TRUE(next.record->back.empty());
}

TEST(NextRecordTest, WhatDoesNotFitItsDealIsSettledWithoutCounting) {
  const OuterRecord base = three();
  const auto why = [&](const Delivery& delivery, bool damaged = false) {
    MemberSeen seen = delivered(delivery);
    if (damaged) seen.damaged.push_back(delivery.base);
    const auto next = next_record(base, {seen}, 60, rules());
    EXPECT_EQ(next.record->settled.at(0).weight, 0);
    EXPECT_TRUE(next.record->settled.at(0).samples.empty());
    EXPECT_EQ(next.record->find("a")->deals.size(), 1u);
    return next.record->settled.at(0).why;
  };
  EXPECT_EQ(why(from(base, "a"), true), "it is damaged");
  Delivery other = from(base, "a");
  other.base_checksum = "xxh64:0";
  EXPECT_EQ(why(other), "it begins from no state of this run");
  Delivery longer = from(base, "a");
  longer.steps = 11;
  EXPECT_EQ(why(longer), "it has done nothing, or more than its deal");
  // Without a deal it is not even looked at.
  Delivery older = from(base, "a");
  older.base = 0;
  EXPECT_TRUE(next_record(base, {delivered(older)}, 60, rules()).record->settled.empty());
}

TEST(NextRecordTest, WhoeverWantsToJoinHasADealOfTheNextRecord) {
  const OuterRecord base = three();
  const auto next = next_record(base, {delivered(from(base, "a")), silent("d")}, 60, rules());
  ASSERT_NE(next.record->find("d"), nullptr);
  EXPECT_EQ(next.record->find("d")->deals[0].base, 2);
  EXPECT_FALSE(next_record(base, {silent("d")}, 59, rules()).record);  // a, b and c work
  const auto without = next_record(base, {silent("d")}, 60, rules());  // and deliver nothing
  ASSERT_TRUE(without.record);
  EXPECT_TRUE(without.record->settled.empty());
  EXPECT_NE(without.record->find("d"), nullptr);

  // Where too few are left for the quorum, a record admits it without counting anything.
  IslandRules two = rules();
  two.quorum = 2;
  MemberSeen done = delivered(from(base, "a"));
  const auto admits =
      next_record(base, {done, silent("b", false), silent("c", false), silent("d")}, 0, two);
  ASSERT_TRUE(admits.record);
  EXPECT_TRUE(admits.record->settled.empty());
  EXPECT_EQ(admits.record->updates, base.updates);
  EXPECT_EQ(admits.record->find("a")->deals.size(), 2u);  // its delivery is still to be counted
  EXPECT_EQ(admits.record->find("b"), nullptr);
  ASSERT_NE(admits.record->find("d"), nullptr);
  const auto then =
      next_record(*admits.record, {done, delivered(from(*admits.record, "d"))}, 60, two);
  ASSERT_EQ(then.record->settled.size(), 2u);
  EXPECT_EQ(then.record->settled[0].weight, 1000);  // no update was missed
}

TEST(NextRecordTest, DealsOfOldStatesGoBack) {
  OuterRecord record = three();
  for (int i = 0; i < kOldestBase; ++i) {
    EXPECT_EQ(record.find("b")->deals.size(), static_cast<std::size_t>(i + 1));
    record = *next_record(record, {delivered(from(record, "a"))}, 60, rules()).record;
  }
  EXPECT_EQ(record.find("b")->deals.size(), static_cast<std::size_t>(kOldestBase));
  EXPECT_EQ(record.find("b")->deals.front().base, 2);
  EXPECT_EQ(record.ancestors.size(), static_cast<std::size_t>(kOldestBase));
}

TEST(NextRecordTest, EvenTimeGivesEachMemberTheStepsThatFit) {
  const OuterRecord base = three();
  IslandRules even = rules();
  even.even_time = true;
  Delivery fast = from(base, "a"), usual = from(base, "b"), slow = from(base, "c");
  fast.step_seconds = 0.1;
  usual.step_seconds = 1;
  slow.step_seconds = 2;
  const auto next =
      next_record(base, {delivered(fast), delivered(usual), delivered(slow)}, 0, even);
  EXPECT_EQ(next.record->find("a")->deals[0].steps, 40);
  EXPECT_EQ(next.record->find("b")->deals[0].steps, 10);
  EXPECT_EQ(next.record->find("c")->deals[0].steps, 5);
  EXPECT_EQ(count_of(next.record->find("c")->deals[0].samples), 20);
}

TEST(OuterRecordTest, ReadsBackAsItWasAndNoDamagePasses) {
  const OuterRecord base = three();
  OuterRecord record = *next_record(base, {delivered(from(base, "a"))}, 60, rules()).record;
  record.leader = {"a", 1};
  record.state = {"outer/state-000002.a.1.1.h5", "sum"};
  const std::string text = record.text();
  EXPECT_EQ(OuterRecord::of_text(text), record);
  EXPECT_EQ(Delivery::of_text(from(base, "a").text()), from(base, "a"));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(OuterRecord::of_text(damaged), JsonError) << i;
  }
  EXPECT_THROW(OuterRecord::of_text(text.substr(0, text.size() / 2)), JsonError);
  EXPECT_THROW(OuterRecord::of_text(""), JsonError);
  EXPECT_THROW(OuterRecord::of_text(from(base, "a").text()), JsonError);
}

}  // namespace
}  // namespace trireme
