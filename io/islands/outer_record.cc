#include "trireme/io/outer_record.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme {
namespace {

// A sealed text ends with the checksum of the text without that end.
constexpr std::string_view kSeal = R"(,"checksum":"xxh64:)";
constexpr std::size_t kDigits = 16;
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kSealed = kSeal.size() + kDigits + kEnd.size();

std::string seal(const Json& value) {
  std::string text = value.dump();
  text.pop_back();  // the brace that closes the object
  const auto hash = static_cast<std::uint64_t>(XXH64(text.data(), text.size(), 0));
  return fmt::format("{}{}{:016x}{}", text, kSeal, hash, kEnd);
}

std::string checksum_in(std::string_view sealed) {
  const std::size_t from = sealed.size() - kEnd.size() - kDigits;
  return fmt::format("xxh64:{}", sealed.substr(from, kDigits));
}

Json unseal(std::string_view sealed) {
  if (sealed.size() < kSealed) throw JsonError("too short");
  const std::size_t bytes = sealed.size() - kSealed;
  const auto hash = static_cast<std::uint64_t>(XXH64(sealed.data(), bytes, 0));
  if (sealed.substr(bytes) != fmt::format("{}{:016x}{}", kSeal, hash, kEnd)) {
    throw JsonError("its checksum does not fit");
  }
  return Json::parse_unique(sealed);
}

Json json_of(const SampleRanges& ranges) {
  Json list = Json::array();
  for (const SampleRange& range : ranges) list.push_back(Json::array({range.begin, range.end}));
  return list;
}

SampleRanges ranges_of(const Json& list) {
  SampleRanges ranges;
  for (const Json& range : list.items()) {
    ranges.push_back({range.at(std::size_t{0}).integer(), range.at(std::size_t{1}).integer()});
  }
  return ranges;
}

Json json_of(const TensorFile& file) {
  return Json::object({{"file", file.name}, {"checksum", file.checksum}});
}

TensorFile file_of(const Json& file) {
  return {file.at("file").text(), file.at("checksum").text()};
}

Json json_of(const MemberName& member) {
  return Json::object({{"name", member.name}, {"incarnation", member.incarnation}});
}

MemberName name_of(const Json& member) {
  return {member.at("name").text(), member.at("incarnation").integer()};
}

Json json_of(const Delivery& delivery) {
  return Json::object({{"member", json_of(delivery.member)},
                       {"base", delivery.base},
                       {"base_checksum", delivery.base_checksum},
                       {"steps", delivery.steps},
                       {"targets", delivery.targets},
                       {"finite", Json(delivery.finite)},
                       {"step_s", delivery.step_seconds},
                       {"gradient", json_of(delivery.gradient)}});
}

Delivery delivery_of(const Json& text) {
  return {.member = name_of(text.at("member")),
          .base = text.at("base").integer(),
          .base_checksum = text.at("base_checksum").text(),
          .steps = text.at("steps").integer(),
          .targets = text.at("targets").integer(),
          .finite = text.at("finite").boolean(),
          .step_seconds = text.at("step_s").number(),
          .gradient = file_of(text.at("gradient"))};
}

Json json_of(const Settled& settled) {
  return Json::object({{"delivery", json_of(settled.delivery)},
                       {"weight", settled.weight},
                       {"why", settled.why},
                       {"samples", json_of(settled.samples)}});
}

Json json_of(const OuterMember& member) {
  Json deals = Json::array();
  for (const Deal& deal : member.deals) {
    deals.push_back(Json::object(
        {{"base", deal.base}, {"steps", deal.steps}, {"samples", json_of(deal.samples)}}));
  }
  return Json::object({{"member", json_of(member.member)},
                       {"step_s", member.step_seconds},
                       {"deals", std::move(deals)}});
}

OuterMember member_of(const Json& text) {
  OuterMember member;
  member.member = name_of(text.at("member"));
  member.step_seconds = text.at("step_s").number();
  for (const Json& deal : text.at("deals").items()) {
    member.deals.push_back(
        {deal.at("base").integer(), deal.at("steps").integer(), ranges_of(deal.at("samples"))});
  }
  return member;
}

}  // namespace

std::string digest_of(std::string_view text) {
  return fmt::format("xxh64:{:016x}",
                     static_cast<std::uint64_t>(XXH64(text.data(), text.size(), 0)));
}

bool is_member_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::int64_t count_of(const SampleRanges& ranges) {
  std::int64_t count = 0;
  for (const SampleRange& range : ranges) count += range.end - range.begin;
  return count;
}

std::int64_t sample_at(const SampleRanges& ranges, std::int64_t i) {
  for (const SampleRange& range : ranges) {
    const std::int64_t count = range.end - range.begin;
    if (i < count) return range.begin + i;
    i -= count;
  }
  throw InternalError("there are fewer samples than were asked for");
}

SampleRanges take_front(SampleRanges& ranges, std::int64_t count) {
  SampleRanges taken;
  while (count > 0 && !ranges.empty()) {
    SampleRange& first = ranges.front();
    const std::int64_t most = std::min(count, first.end - first.begin);
    taken.push_back({first.begin, first.begin + most});
    first.begin += most;
    count -= most;
    if (first.begin == first.end) ranges.erase(ranges.begin());
  }
  return taken;
}

std::string Delivery::text() const {
  return seal(json_of(*this));
}

Delivery Delivery::of_text(std::string_view text) {
  return delivery_of(unseal(text));
}

const Deal* OuterMember::deal_of(std::int64_t base) const {
  const auto found = std::ranges::find(deals, base, &Deal::base);
  return found == deals.end() ? nullptr : &*found;
}

const OuterMember* OuterRecord::find(std::string_view name) const {
  const auto found =
      std::ranges::find(members, name, [](const OuterMember& m) { return m.member.name; });
  return found == members.end() ? nullptr : &*found;
}

std::string OuterRecord::checksum() const {
  return checksum_in(text());
}

std::string OuterRecord::text() const {
  Json known = Json::array(), member_list = Json::array(), settled_list = Json::array();
  for (const Ancestor& ancestor : ancestors) {
    known.push_back(Json::object({{"number", ancestor.number},
                                  {"checksum", ancestor.checksum},
                                  {"updates", ancestor.updates}}));
  }
  for (const OuterMember& member : members) member_list.push_back(json_of(member));
  for (const Settled& one : settled) settled_list.push_back(json_of(one));
  return seal(Json::object({{"format_version", 1},
                            {"number", number},
                            {"config", config},
                            {"leader", json_of(leader)},
                            {"updates", updates},
                            {"state", json_of(state)},
                            {"ancestors", std::move(known)},
                            {"members", std::move(member_list)},
                            {"settled", std::move(settled_list)},
                            {"back", json_of(back)},
                            {"next_sample", next_sample}}));
}

OuterRecord OuterRecord::of_text(std::string_view text) {
  const Json json = unseal(text);
  if (json.at("format_version").integer() != 1) throw JsonError("of a later version");
  OuterRecord record;
  record.number = json.at("number").integer();
  record.config = json.at("config").text();
  record.leader = name_of(json.at("leader"));
  record.updates = json.at("updates").integer();
  record.state = file_of(json.at("state"));
  for (const Json& one : json.at("ancestors").items()) {
    record.ancestors.push_back(
        {one.at("number").integer(), one.at("checksum").text(), one.at("updates").integer()});
  }
  for (const Json& one : json.at("members").items()) record.members.push_back(member_of(one));
  for (const Json& one : json.at("settled").items()) {
    record.settled.push_back({delivery_of(one.at("delivery")), one.at("weight").number(),
                              one.at("why").text(), ranges_of(one.at("samples"))});
  }
  record.back = ranges_of(json.at("back"));
  record.next_sample = json.at("next_sample").integer();
  return record;
}

}  // namespace trireme
