// Where the stages of a pipeline are cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/options.h"

namespace trireme {

// equal: stages cost the same; the numbers of blocks that are given; or auto, by speeds that the
// run's first start measures: then its records tell the numbers that it came to, too.
class StageCut {
 public:
  StageCut() = default;  // equal
  static StageCut of_blocks(std::vector<int> blocks);
  // `blocks`: what auto has come to; empty: it is to be settled.
  static StageCut automatic(std::vector<int> blocks = {});

  bool is_auto() const { return automatic_; }
  // The numbers of each part of the model, in its order: given, or what auto has come to.
  const std::vector<int>& blocks() const { return blocks_; }

  bool operator==(const StageCut&) const = default;

 private:
  bool automatic_ = false;
  std::vector<int> blocks_;
};

// These are what options.h says of them: "equal", "5,3", "auto", or in a record "auto 5,3".
std::string read_value(std::string_view text, StageCut& value, const Limit& limit);
std::string write_value(const StageCut& value);
inline std::string value_placeholder(const StageCut&) {
  return "LIST";
}

}  // namespace trireme
