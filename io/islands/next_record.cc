// What an outer step counts, and who is dealt which samples next.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/upper_median.h"
#include "trireme/io/outer_record.h"

namespace trireme {
namespace {

constexpr double kMostOfSteps = 4;  // even_time: inner steps stay within [steps / 4, 4 steps]

// The samples that belong to nobody.
class Pool {
 public:
  Pool(SampleRanges back, std::int64_t next) : back_(std::move(back)), next_(next) {}

  void put_back(const SampleRanges& ranges) {
    back_.insert(back_.end(), ranges.begin(), ranges.end());
    std::ranges::sort(back_, {}, &SampleRange::begin);
    SampleRanges joined;
    for (const SampleRange& range : back_) {
      if (!joined.empty() && joined.back().end == range.begin) {
        joined.back().end = range.end;
      } else {
        joined.push_back(range);
      }
    }
    back_ = std::move(joined);
  }

  SampleRanges take(std::int64_t count) {
    SampleRanges taken = take_front(back_, count);
    const std::int64_t rest = count - count_of(taken);
    if (rest > 0) taken.push_back({next_, next_ + rest});
    next_ += rest;
    return taken;
  }

  const SampleRanges& back() const { return back_; }
  std::int64_t next() const { return next_; }

 private:
  SampleRanges back_;
  std::int64_t next_;
};

// What `previous` and its ancestors are called.
std::vector<OuterRecord::Ancestor> chain_to(const OuterRecord& previous) {
  std::vector<OuterRecord::Ancestor> chain = previous.ancestors;
  chain.insert(chain.begin(), {previous.number, previous.checksum(), previous.updates});
  if (chain.size() > static_cast<std::size_t>(kOldestBase)) chain.resize(kOldestBase);
  return chain;
}

// Members of the last record, and what a leader sees of each.
struct Known {
  const OuterMember* member;
  MemberSeen seen;
};

class OuterStep {
 public:
  OuterStep(const OuterRecord& previous, const std::vector<MemberSeen>& seen,
            const IslandRules& rules)
      : previous_(previous), rules_(rules), pool_(previous.back, previous.next_sample) {
    std::map<std::string, MemberSeen> by_name;
    for (const MemberSeen& one : seen) by_name[one.member.name] = one;
    for (const OuterMember& member : previous.members) {
      const auto found = by_name.find(member.member.name);
      if (found == by_name.end()) {
        known_.push_back({&member, {member.member, true, {}, {}}});
      } else {
        known_.push_back({&member, found->second});
        by_name.erase(found);
      }
    }
    for (auto& [name, one] : by_name) {
      if (one.living) joining_.push_back(one.member);
    }
  }

  NextRecord decide(double waited) {
    const int quorum = std::max(rules_.quorum, 1);
    int delivered = 0, able = 0, missing = 0;
    for (const Known& one : known_) {
      const bool any = !one.seen.delivered.empty();
      if (any) ++delivered;
      if (any || one.seen.living) ++able;
      if (one.seen.living && !has_delivered(one, previous_.number)) ++missing;
    }
    if (delivered >= quorum && (missing == 0 || waited >= rules_.patience)) return {make(true), ""};
    // Who lives and never delivers must not keep others out for ever.
    const bool few = able < quorum || waited >= rules_.patience;
    if (few && !joining_.empty()) return {make(false), ""};
    if (able < quorum) {
      return {{}, fmt::format("members: {} of a quorum of {} are there", able, quorum)};
    }
    return {{}, fmt::format("deliveries: {} have come, {} are missing", delivered, missing)};
  }

 private:
  static bool has_delivered(const Known& one, std::int64_t base) {
    return std::ranges::any_of(one.seen.delivered,
                               [&](const Delivery& d) { return d.base == base; });
  }

  // The record that counts what was delivered, or one that only lets members in and out.
  OuterRecord make(bool counts) {
    record_.number = previous_.number + 1;
    record_.config = previous_.config;
    chain_ = chain_to(previous_);
    record_.ancestors = chain_;
    for (const Known& one : known_) {
      OuterMember member = *one.member;
      member.member.incarnation = std::max(member.member.incarnation, one.seen.member.incarnation);
      if (counts) settle_deliveries(member, one.seen);
      const bool stays = one.seen.living || (!counts && !one.seen.delivered.empty());
      take_back(member, stays ? record_.number - kOldestBase + 1 : record_.number);
      if (stays) record_.members.push_back(std::move(member));
    }
    for (const MemberName& one : joining_) record_.members.push_back({one, 0, {}});
    std::ranges::sort(record_.members, {}, [](const OuterMember& m) { return m.member.name; });
    deal_samples();
    const bool changes = std::ranges::any_of(record_.settled, [](auto& s) { return s.weight > 0; });
    record_.updates = previous_.updates + (changes ? 1 : 0);
    record_.back = pool_.back();
    record_.next_sample = pool_.next();
    return std::move(record_);
  }

  // A settled deal leaves the record, so nothing can be counted for it again.
  void settle_deliveries(OuterMember& member, const MemberSeen& seen) {
    for (const Delivery& delivery : seen.delivered) {
      const auto deal = std::ranges::find(member.deals, delivery.base, &Deal::base);
      if (deal == member.deals.end()) continue;
      const bool damaged = std::ranges::count(seen.damaged, delivery.base) > 0;
      Settled settled = judge(delivery, *deal, damaged);
      SampleRanges rest = deal->samples;
      if (settled.weight > 0 || !delivery.finite) {
        settled.samples = take_front(rest, delivery.steps * rules_.samples);
      }
      pool_.put_back(rest);
      member.deals.erase(deal);
      if (delivery.step_seconds > 0) member.step_seconds = delivery.step_seconds;
      record_.settled.push_back(std::move(settled));
    }
  }

  Settled judge(const Delivery& delivery, const Deal& deal, bool damaged) const {
    Settled settled{delivery, 0, "", {}};
    const auto base = std::ranges::find(chain_, delivery.base, &OuterRecord::Ancestor::number);
    if (damaged) {
      settled.why = "it is damaged";
    } else if (base == chain_.end() || base->checksum != delivery.base_checksum) {
      settled.why = "it begins from no state of this run";
    } else if (delivery.steps < 1 || delivery.steps > deal.steps || delivery.targets < 1) {
      settled.why = "it has done nothing, or more than its deal";
    } else if (!delivery.finite) {
      settled.why = "it is not finite";
    } else {
      const auto age = static_cast<double>(previous_.updates - base->updates);
      settled.weight = static_cast<double>(delivery.targets) * std::pow(rules_.stale, age);
      if (!(settled.weight > 0)) settled.why = "it is late";
    }
    return settled;
  }

  // Takes the deals from bases before `oldest` back.
  void take_back(OuterMember& member, std::int64_t oldest) {
    std::erase_if(member.deals, [&](const Deal& deal) {
      if (deal.base >= oldest) return false;
      pool_.put_back(deal.samples);
      return true;
    });
  }

  void deal_samples() {
    std::vector<double> times;
    for (const OuterMember& member : record_.members) {
      if (member.step_seconds > 0) times.push_back(member.step_seconds);
    }
    const double usual = times.empty() ? 0 : upper_median(times);
    for (OuterMember& member : record_.members) {
      const std::int64_t steps = steps_of(member, usual);
      member.deals.push_back({record_.number, steps, pool_.take(steps * rules_.samples)});
    }
  }

  // How many inner steps a member is dealt; `usual` is the median of a step's time, 0: not known.
  std::int64_t steps_of(const OuterMember& member, double usual) const {
    if (!rules_.even_time || !(member.step_seconds > 0)) return rules_.steps;
    const double speed = std::clamp(usual / member.step_seconds, 1 / kMostOfSteps, kMostOfSteps);
    return std::max<std::int64_t>(std::llround(static_cast<double>(rules_.steps) * speed), 1);
  }

  const OuterRecord& previous_;
  const IslandRules& rules_;
  Pool pool_;
  std::vector<OuterRecord::Ancestor> chain_;  // to the previous record
  std::vector<Known> known_;                  // by name
  std::vector<MemberName> joining_;           // by name
  OuterRecord record_;
};

}  // namespace

NextRecord next_record(const OuterRecord& previous, const std::vector<MemberSeen>& seen,
                       double waited, const IslandRules& rules) {
  return OuterStep(previous, seen, rules).decide(waited);
}

OuterRecord first_record(const std::string& config, const MemberName& founder,
                         const IslandRules& rules) {
  const std::int64_t samples = rules.steps * rules.samples;
  OuterRecord record;
  record.config = config;
  record.members = {{founder, 0, {{0, rules.steps, {{0, samples}}}}}};
  record.next_sample = samples;
  return record;
}

}  // namespace trireme
