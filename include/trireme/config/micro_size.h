// The samples of a micro-batch, which may follow from the run.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/options.h"

namespace trireme {

// A number of samples that is given, or auto: then the run settles it, and its records tell both.
// As an integer it is the number; it must not be used so before it is settled.
class MicroSize {
 public:
  MicroSize() = default;  // not given, so it is auto
  MicroSize(int samples) : state_(State::kGiven), number_(samples) {}
  // "auto", as somebody wrote it, or as the record of a run has it, with what it came to there.
  static MicroSize written_auto(std::optional<int> came_to = {});

  void settle(int samples);  // what auto comes to

  operator int() const;
  bool is_known() const { return state_ == State::kGiven || state_ == State::kSettled; }
  bool is_written_auto() const { return state_ == State::kWrittenAuto; }
  // The number, also one that auto came to in the run that this is a record of.
  const std::optional<int>& number() const { return number_; }

  // Who wrote "auto" and who gave nothing ask for the same.
  bool operator==(const MicroSize& other) const;
  template <std::integral Integer>
  bool operator==(Integer samples) const {
    return *this == MicroSize(static_cast<int>(samples));
  }

  friend std::string write_value(const MicroSize& value);
  friend std::optional<std::string> written_value(const MicroSize& value);

 private:
  enum class State { kNotGiven, kWrittenAuto, kSettled, kGiven };

  State state_ = State::kNotGiven;
  std::optional<int> number_;
};

// These are what options.h says of them: "4", "auto", or in a record "auto 4". Limits are those of
// the number.
std::string read_value(std::string_view text, MicroSize& value, const Limit& limit);
std::string write_value(const MicroSize& value);
std::optional<std::string> written_value(const MicroSize& value);
inline std::string value_placeholder(const MicroSize&) {
  return "N";
}

}  // namespace trireme
