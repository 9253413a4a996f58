// The records of a run that several jobs carry: what each outer step counted, who belongs to the
// run, and which samples belong to whom. io/ISLANDS.md tells the protocol.
//
// Outer state N is a record, published under a name that never changes hands, and a file of tensors
// that the record names. Everything that decides what counts follows from the chain of records
// alone, never from a listing or a clock: a member works on a deal of the last record, a deal is
// settled or taken back once, and what is settled or taken back is in no later record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Samples `begin` to `end` - 1. A sample is its position in the endless order of the data, so that
// the epoch is a part of its number.
struct SampleRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const SampleRange&) const = default;
};
using SampleRanges = std::vector<SampleRange>;  // used in this order
std::int64_t count_of(const SampleRanges& ranges);
// The i-th of the samples.
std::int64_t sample_at(const SampleRanges& ranges, std::int64_t i);
// Takes the first `count` samples away and returns them; fewer where there are fewer.
SampleRanges take_front(SampleRanges& ranges, std::int64_t count);

// "xxh64:0123456789abcdef"
std::string digest_of(std::string_view text);

// A file of tensors: its name relative to the run's folder, and a checksum of its contents, which
// whoever writes the file chooses and whoever reads it compares.
struct TensorFile {
  std::string name, checksum;
  bool operator==(const TensorFile&) const = default;
};

// Whether the text may be a member's name, which is a folder's and a part of names of files: it has
// letters, digits, -, _ and ., and does not begin with the last.
bool is_member_name(std::string_view text);

struct MemberName {
  std::string name;
  std::int64_t incarnation = 0;  // counts the starts of the member
  bool operator==(const MemberName&) const = default;
};

// What a member may do from an outer state: so many inner steps, on these samples.
struct Deal {
  std::int64_t base = 0;  // the number of the outer state
  std::int64_t steps = 0;
  SampleRanges samples;
  bool operator==(const Deal&) const = default;
};

// What a member did of a deal. A member delivers once from an outer state, so that name and base
// name a delivery; its file never changes.
struct Delivery {
  MemberName member;
  std::int64_t base = 0;
  std::string base_checksum;  // of the record of the outer state
  std::int64_t steps = 0;     // at most those of the deal, on the first of its samples
  std::int64_t targets = 0;   // that the samples had: its weight
  bool finite = true;         // false: the outer gradient is not, so it must not be added
  double step_seconds = 0;    // of an inner step
  TensorFile gradient;
  bool operator==(const Delivery&) const = default;

  std::string text() const;
  // Throws JsonError for what is not the text of a delivery, or was damaged.
  static Delivery of_text(std::string_view text);
};

// A delivery that a record has taken note of.
struct Settled {
  Delivery delivery;
  double weight = 0;     // targets, less with age; 0: not counted
  std::string why;       // it is not counted
  SampleRanges samples;  // that are used up by it
  bool operator==(const Settled&) const = default;
};

struct OuterMember {
  MemberName member;
  double step_seconds = 0;  // that it has told last; 0: none yet
  std::vector<Deal> deals;  // open ones, by base; the last one is of this record
  const Deal* deal_of(std::int64_t base) const;
  bool operator==(const OuterMember&) const = default;
};

struct OuterRecord {
  // What later records must know of an earlier one.
  struct Ancestor {
    std::int64_t number = 0;
    std::string checksum;
    std::int64_t updates = 0;
    bool operator==(const Ancestor&) const = default;
  };

  std::int64_t number = 0;
  std::string config;        // a digest of the configuration that all members share
  MemberName leader;         // who published it
  std::int64_t updates = 0;  // how many records up to this one changed the outer state
  TensorFile state;
  std::vector<Ancestor> ancestors;   // the latest first, at most kOldestBase
  std::vector<OuterMember> members;  // by name
  std::vector<Settled> settled;      // by name and base: the order in which they are added
  SampleRanges back;                 // dealt once, taken back, and not dealt again
  std::int64_t next_sample = 0;      // the first that was never dealt
  bool operator==(const OuterRecord&) const = default;

  const OuterMember* find(std::string_view name) const;
  std::string checksum() const;  // of the text
  std::string text() const;
  // Throws JsonError for what is not the text of a record, or was damaged.
  static OuterRecord of_text(std::string_view text);
};

// Work from a state that is older by more records than this is not counted; its deal goes back.
inline constexpr std::int64_t kOldestBase = 8;

struct IslandRules {
  std::int64_t steps = 1;    // inner steps between outer ones
  bool even_time = false;    // more inner steps for fast members, fewer for slow ones
  std::int64_t samples = 1;  // of an inner step
  int quorum = 1;            // an outer step has deliveries of at least so many members
  double patience = 0;       // seconds after which an outer step does without the rest
  double stale = 0.5;        // factor of the weight for each update that a delivery is late
  double silence = 120;      // seconds without a heartbeat after which a member counts as dead
  double poll = 1;           // seconds between two looks at the folder
  // The run ends with the state that has so many updates; 0: it does not.
  std::int64_t updates = 0;

  bool is_last(const OuterRecord& record) const { return updates > 0 && record.updates >= updates; }
};

// One member as a leader sees it.
struct MemberSeen {
  MemberName member;
  bool living = false;
  std::vector<Delivery> delivered;    // of its open deals, as far as they are visible
  std::vector<std::int64_t> damaged;  // the bases of those whose tensors are
};

// The next record of the chain, or what it waits for.
struct NextRecord {
  std::optional<OuterRecord> record;  // without leader and state
  std::string waits_for;
};

// Decides about an outer step. `seen` has the members of `previous`, those who are not there count
// as living without a delivery, and whoever else lives and wants to join; `waited` is for how long
// this has been waited for, in seconds.
//
// The step closes when all living members have delivered from `previous`, or after the patience,
// with at least the quorum. Then the living members, and who joins, have a deal of the new record;
// deals of the dead go back. Where members who could deliver are too few for the quorum, or too few
// did within the patience, and somebody wants to join, a record without deliveries admits them.
NextRecord next_record(const OuterRecord& previous, const std::vector<MemberSeen>& seen,
                       double waited, const IslandRules& rules);

// The first record, without leader and state: nothing is settled, and the founder has a deal.
OuterRecord first_record(const std::string& config, const MemberName& founder,
                         const IslandRules& rules);

}  // namespace trireme
