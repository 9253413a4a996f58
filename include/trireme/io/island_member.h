// A member of a run that several jobs carry: it joins, delivers its work, waits for the next outer
// state, and makes that state where nobody else does. io/ISLANDS.md tells the protocol.
//
// The calls block and use one thread; the heartbeat may be given in another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/io/island_folder.h"
#include "trireme/io/outer_record.h"

namespace trireme {

// The sign of life of a member: the file islands/NAME/heartbeat.
class Heartbeat {
 public:
  Heartbeat(IslandFolder& folder, MemberName member);
  void beat();
  // Tells that the member has ended, so that nobody waits for it.
  void leave();

 private:
  IslandFolder& folder_;
  MemberName member_;
  std::int64_t beats_ = 0;
};

// A thread that gives the heartbeat every `seconds`, from construction to destruction, and leaves
// then. A beat that fails is left out. Throws the Error of start_thread.
class HeartbeatThread {
 public:
  HeartbeatThread(IslandFolder& folder, MemberName member, double seconds);
  ~HeartbeatThread();
  HeartbeatThread(const HeartbeatThread&) = delete;
  HeartbeatThread& operator=(const HeartbeatThread&) = delete;

 private:
  Heartbeat heartbeat_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::jthread thread_;  // the last member, joined first
};

// For how long a file has not changed, as far as somebody has watched it. Clocks of two hosts are
// never compared: silence is this process's own time, and of a gap between two looks, in which
// perhaps nobody could have seen anything, only a part counts.
class SilenceWatch {
 public:
  // `text`: the file as it is now; nothing where it is absent. `now` in seconds; `silence`: after
  // how much of it the writer counts as dead. Returns whether the file has changed.
  bool look(const std::optional<std::string>& text, double now, double silence);
  double silent() const { return silent_; }  // seconds

 private:
  std::optional<std::string> last_;
  double silent_ = 0, looked_ = 0;
  bool begun_ = false;
};

// Finds out by looking again and again whether a member lives.
class HeartbeatWatch {
 public:
  // The arguments are those of SilenceWatch::look. A heartbeat of an incarnation before the last
  // one seen is as good as none.
  void look(const std::optional<std::string>& heartbeat, double now, double silence);

  std::int64_t incarnation() const { return incarnation_; }  // 0: nothing seen yet
  bool living(double silence) const { return !left_ && watch_.silent() < silence; }
  bool seen_to_beat() const { return beats_ > 1 && !left_; }

 private:
  SilenceWatch watch_;
  std::optional<std::string> last_;
  std::int64_t incarnation_ = 0, beats_ = 0;
  bool left_ = false;
};

// What a run does with tensors. These calls may take long.
class IslandWork {
 public:
  virtual ~IslandWork() = default;

  // Writes and syncs outer state 0, from which the run begins. Returns the checksum. Names of files
  // are relative to the run's folder; publishing the record syncs the folder that they are in.
  virtual std::string first_state(const std::string& file) = 0;

  struct Made {
    std::string checksum;               // of the state; empty: it was not made
    std::vector<TensorFile> damaged{};  // outer gradients that can be read and are wrong
    std::string absent{};               // a file that is needed and is not there
  };
  // Writes and syncs the state after `previous` to `file`: adds the outer gradients of `settled`
  // whose weight is above 0, in this order along the tree of comm/sum_tree.h, each with its weight
  // over the sum of the weights. Makes nothing where a file is not there, because it is not visible
  // yet or was removed after somebody else has made the state.
  virtual Made next_state(const OuterRecord& previous, const std::vector<Settled>& settled,
                          const std::string& file) = 0;

  // Takes the outer state of a record as this member's weights. False where its file is not there.
  virtual bool load(const OuterRecord& record) = 0;
};

class IslandMember {
 public:
  struct Options {
    MemberName name;
    std::string config;  // a digest of the configuration
    IslandRules rules;
    // What decides about an outer step; tests break it.
    std::function<decltype(next_record)> decide = &next_record;
  };
  // The objects must outlive this one.
  IslandMember(IslandFolder& folder, IslandClock& clock, IslandWork& work, Options options);

  // Waits for an outer state that is newer than that of the last call and has a deal for this
  // member from which it has not delivered, and loads it. While it waits it may lead. At the first
  // call it joins the run, or begins it where there is none. Returns nullptr, and loads nothing,
  // when the newest state is the run's last. Throws RunFolderError if the run has another
  // configuration or the chain of records is damaged.
  const OuterRecord* next_start();

  // The deal of the state that next_start() returned.
  const Deal& deal() const;

  // The name of the file for the outer gradient of that deal.
  std::string gradient_file() const;

  // Delivers the work on that deal; the file of the gradient is whole and synced. Fills in who
  // delivers and from which state. If an earlier incarnation has delivered from it already, that
  // counts, and this does not.
  void deliver(Delivery delivery);

  // The newest record that was seen.
  const OuterRecord& newest() const { return *newest_; }
  // What the outer step waits for, as far as this member leads it; for messages.
  const std::string& waits_for() const { return waits_for_; }

 private:
  std::optional<std::string> read_record(std::int64_t number);
  void advance();
  void take(const OuterRecord& record);
  bool start();
  bool leads();
  void lead();
  void found();
  void see_deliveries(const OuterMember& of, MemberSeen& seen);
  std::vector<MemberSeen> look_at_members();
  HeartbeatWatch& heart_of(const std::string& name);
  void make_next(OuterRecord record);
  bool publish_record(const OuterRecord& record);
  bool publish(const std::string& name, const std::string& text);
  void remove_old(const OuterRecord& published, const OuterRecord& previous);
  void remove_own_old();
  std::string mark();
  std::string words_on_absent(const std::string& file) const;

  IslandFolder& folder_;
  IslandClock& clock_;
  IslandWork& work_;
  Options options_;

  std::optional<OuterRecord> newest_;
  std::optional<OuterRecord> start_;  // from which this member works
  std::int64_t settled_with_ = -1;    // from states up to this one there is nothing more to do
  std::int64_t attempts_ = 0;         // makes names of private files differ
  std::string waits_for_;

  // The outer step after newest_.
  double waited_since_ = 0;
  std::map<std::pair<std::string, std::int64_t>, Delivery> seen_;  // by member and base
  std::vector<TensorFile> damaged_;

  std::map<std::string, HeartbeatWatch> hearts_;
  SilenceWatch lease_;         // of another leader
  std::int64_t renewals_ = 0;  // of the own lease
  double renewed_ = 0;
};

}  // namespace trireme
