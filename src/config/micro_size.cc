#include "trireme/config/micro_size.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::string_view kAuto = "auto";

}  // namespace

MicroSize MicroSize::written_auto(std::optional<int> came_to) {
  MicroSize result;
  result.state_ = State::kWrittenAuto;
  result.number_ = came_to;
  return result;
}

void MicroSize::settle(int samples) {
  TRIREME_CHECK(state_ != State::kGiven, "only batch.micro auto is settled");
  state_ = State::kSettled;
  number_ = samples;
}

MicroSize::operator int() const {
  TRIREME_CHECK(is_known(), "batch.micro auto is no number before it is settled");
  return *number_;
}

bool MicroSize::operator==(const MicroSize& other) const {
  if (!is_known() || !other.is_known()) return is_known() == other.is_known();
  return number_ == other.number_;
}

std::string read_value(std::string_view text, MicroSize& value, const Limit& limit) {
  if (text == kAuto) {
    value = MicroSize::written_auto();
    return "";
  }
  const bool recorded = text.starts_with(fmt::format("{} ", kAuto));
  int samples = 0;
  const std::string problem =
      read_value(recorded ? text.substr(kAuto.size() + 1) : text, samples, limit);
  if (problem.empty()) value = recorded ? MicroSize::written_auto(samples) : MicroSize(samples);
  return problem;
}

std::string write_value(const MicroSize& value) {
  if (value.state_ == MicroSize::State::kGiven) return write_value(*value.number_);
  return value.number_ ? fmt::format("{} {}", kAuto, *value.number_) : std::string(kAuto);
}

std::optional<std::string> written_value(const MicroSize& value) {
  if (value.state_ == MicroSize::State::kNotGiven) return std::nullopt;
  return write_value(value);
}

}  // namespace trireme
