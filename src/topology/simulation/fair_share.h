// How messages that are under way share the links on their routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trireme {

// Each message has its max-min fair share of the links: all rates grow together until a link is
// full or a message is as fast as it can be; the messages on that link, or that message, keep their
// rate, and the others go on growing.
//
// Rates are not set anew for all messages whenever one comes or goes. Each link remembers how much
// the rates on it have changed since it was last looked at. If that is a part in kFinest of its
// capacity, or in kExact of it where it carries fewer than kFinest messages, its share is computed
// anew from what the other links give to its messages, and what this changes on the other links
// counts there in turn. Until then a message that comes takes the share that its links give to the
// others. Where this would touch most messages, all rates are set at once.
class FairShare {
 public:
  static constexpr int kFinest = 16;
  static constexpr int kExact = 1000;

  explicit FairShare(std::vector<double> capacities);  // of the links, in bytes/s

  // A message sets out. `what` identifies it; `links` are those of its route, at least one. It has
  // at most `most` bytes/s, even where it has the links to itself.
  void begin(double now, void* what, const std::vector<int>& links, double bytes,
             double most = std::numeric_limits<double>::infinity());
  // Sets the rates, if messages have come or gone. Call it before time passes.
  void settle(double now);
  // When the next message arrives, if none comes or goes before; infinity if none is under way.
  double next_end();
  // Takes out the messages that have arrived, in the order in which they set out. Times that differ
  // by at most `rounding` are the same.
  std::vector<void*> take_ended(double now, double rounding);
  // The rate of a message under way, as of the last settle().
  double rate_of(const void* what) const;
  // How often a rate was computed, of any message.
  std::uint64_t work() const { return work_; }

 private:
  using FlowIndex = std::uint32_t;
  struct Place {
    int link;
    std::uint32_t index;  // in on_ of the link
  };
  struct Flow {
    void* what = nullptr;  // nullptr: free
    double end = 0.0;      // at the present rate
    double rate = 0.0;
    double most = 0.0;         // bytes/s
    std::uint64_t number = 0;  // in the order in which they set out
    std::size_t queued = 0;    // index in queue_
    std::uint32_t links = 0;   // of its route
  };
  // A flow ends at `time` or later.
  struct End {
    double time;
    FlowIndex flow;
  };
  struct Full {
    double share;
    int link;
    bool operator>(const Full& other) const { return share > other.share; }
  };

  // A flow's places on its links.
  std::span<Place> places_of(FlowIndex flow) {
    return {places_.data() + flow * longest_, flows_[flow].links};
  }
  void make_room(std::size_t links);
  void change(int link, double rate);
  void remove(FlowIndex flow);
  // Computes the share of a link from those of the others; returns how many messages it carries.
  std::size_t share_link(double now, int link);
  void share_all(double now);
  std::vector<FlowIndex> by_most() const;
  void fill();
  void fix(FlowIndex flow, double rate);
  void set_rate(double now, FlowIndex flow, double rate);

  // The queue of ends is a heap whose entries know their places.
  void put(std::size_t index, const End& end);
  void rise(std::size_t index, const End& end);
  void sink(std::size_t index, const End& end);
  void update_first();

  std::vector<double> capacities_;
  std::vector<Flow> flows_;
  std::vector<Place> places_;  // of each flow, `longest_` apart
  std::size_t longest_ = 0;    // route
  std::vector<FlowIndex> free_;
  std::vector<End> queue_;  // of all flows under way
  std::uint64_t next_number_ = 0;
  std::size_t visits_ = 0;  // of messages, since all rates were set at once
  std::uint64_t work_ = 0;
  std::vector<int> due_;        // links whose shares must be computed before time passes
  std::vector<int> used_;       // links with messages, while all rates are set
  std::vector<double> limits_;  // of the messages on a link
  std::vector<double> rates_;   // by flow, while all rates are set

  // These have an element for each link.
  std::vector<std::vector<FlowIndex>> on_;  // messages
  std::vector<double> changes_;             // of rates, since its share was computed
  std::vector<bool> is_due_;
  std::vector<double> share_;  // no message on it is faster; what it offers to one that comes
  std::vector<double> left_;   // capacity
  std::vector<int> growing_;   // messages without a rate, while all rates are set
};

}  // namespace trireme
