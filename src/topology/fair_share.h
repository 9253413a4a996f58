// How messages that are under way share the links on their routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace trireme {

// Each message has its max-min fair share of the links: all rates grow together until a link is
// full or a message is as fast as it can be; the messages on that link, or that message, keep their
// rate, and the others go on growing.
//
// Where a link carries many messages, one more or less changes the others little. So rates are set
// anew when a part in kFinest of the messages on some link has come or gone; until then a message
// that comes takes the share that its links give to the others. Links with fewer messages than
// kFinest are always exact.
class FairShare {
 public:
  static constexpr int kFinest = 16;

  explicit FairShare(std::vector<double> capacities);  // of the links, in bytes/s

  // A message sets out. `what` identifies it; `links` are those of its route, at least one. It has
  // at most `most` bytes/s, even where it has the links to itself.
  void begin(double now, void* what, const std::vector<int>& links, double bytes,
             double most = std::numeric_limits<double>::infinity());
  // Sets the rates, if messages have come or gone. Call it before time passes.
  void settle(double now);
  // When the next message arrives, if none comes or goes before; infinity if none is under way.
  double next_end() const;
  // Takes out the messages that have arrived, in the order in which they set out. Times that differ
  // by at most `rounding` are the same.
  std::vector<void*> take_ended(double now, double rounding);
  // The rate of a message under way, as of the last settle().
  double rate_of(const void* what) const;

 private:
  struct Flow {
    void* what;  // nullptr: it has arrived
    double end;  // at the present rate
    double rate;
    double most;             // bytes/s
    double remaining;        // bytes, while rates are set
    std::size_t first_link;  // in routes_
    std::size_t last_link;   // behind it
  };
  struct End {
    double time;
    std::size_t flow;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : flow > other.flow;
    }
  };
  struct Full {
    double share;
    int link;
    bool operator>(const Full& other) const { return share > other.share; }
  };

  void change(int link, int by);
  void drop_ended(double now);
  void list_by_link();
  std::vector<std::uint32_t> by_most() const;
  void fill();
  void fix(Flow& flow, double rate);

  std::vector<double> capacities_;
  std::vector<Flow> flows_;   // in the order in which they set out
  std::vector<int> routes_;   // the links of each flow
  std::vector<End> ends_;     // a heap, the next one first
  bool is_due_ = false;       // rates must be set before time passes
  std::vector<int> used_;     // links with messages when rates were set
  std::vector<int> changed_;  // links with messages that have come or gone since

  // By link.
  std::vector<int> on_;                     // messages
  std::vector<int> changes_;                // since rates were set
  std::vector<double> left_;                // capacity
  std::vector<double> offered_;             // what it gives to a message that comes
  std::vector<int> growing_;                // messages without a rate, while rates are set
  std::vector<std::size_t> first_of_link_;  // in by_link_
  std::vector<std::uint32_t> by_link_;      // the flows on each link
};

}  // namespace trireme
