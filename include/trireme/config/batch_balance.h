// How the micro-batches of a step are shared out among data replicas of unequal speed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/options.h"

namespace trireme {

// even; by the speeds that are given, a number for each replica; or auto, by those that the run
// measures: then its records tell the shares that it came to, too.
class BatchBalance {
 public:
  BatchBalance() = default;  // even
  static BatchBalance by_speed(std::vector<double> speeds);
  // `shares`: what auto has come to; empty: even shares still.
  static BatchBalance automatic(std::vector<int> shares = {});

  bool is_even() const { return speeds_.empty() && !automatic_; }
  bool is_auto() const { return automatic_; }
  const std::vector<double>& speeds() const { return speeds_; }  // empty: none are given
  const std::vector<int>& shares() const { return shares_; }     // of auto, in micro-batches

  // The most micro-batches that auto gives a replica, for which there must be memory: twice its
  // even share, or all that the others leave.
  static int most_of_auto(int micro_batches, int replicas);

  bool operator==(const BatchBalance&) const = default;

 private:
  bool automatic_ = false;
  std::vector<double> speeds_;
  std::vector<int> shares_;
};

// These are what options.h says of them: "even", "1,0.5,0.5", "auto", or in a record "auto 4,2,2".
std::string read_value(std::string_view text, BatchBalance& value, const Limit& limit);
std::string write_value(const BatchBalance& value);
inline std::string value_placeholder(const BatchBalance&) {
  return "LIST";
}

}  // namespace trireme
