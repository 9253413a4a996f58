// Converts values of options to text and back.
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/options.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

// "at least 0 and below 1"
std::string describe(const Limit& limit) {
  std::string text;
  if (std::isfinite(limit.least)) {
    text = fmt::format("{} {}", limit.excludes_least ? "above" : "at least", limit.least);
  }
  if (std::isfinite(limit.most)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ",
                        limit.excludes_most ? "below" : "at most", limit.most);
  }
  return text;
}

std::string check_limit(double value, const Limit& limit) {
  const bool too_low = limit.excludes_least ? value <= limit.least : value < limit.least;
  const bool too_high = limit.excludes_most ? value >= limit.most : value > limit.most;
  if (too_low || too_high) return "must be " + describe(limit);
  // What is bounded so is computed with in fp32, where 0.99999999 is 1.
  if (limit.excludes_most && static_cast<float>(value) >= static_cast<float>(limit.most)) {
    return fmt::format("must be {}, but fp32 rounds it to {}", describe(limit), limit.most);
  }
  return "";
}

template <class T>
std::string read_number(std::string_view text, T& value, const Limit& limit, const char* kind) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault == std::errc::result_out_of_range) return "is out of range";
  if (fault != std::errc() || stop != end || !std::isfinite(static_cast<double>(number))) {
    return fmt::format("is not a {}", kind);
  }
  const std::string problem = check_limit(static_cast<double>(number), limit);
  if (problem.empty()) value = number;
  return problem;
}

}  // namespace

Limit at_least(double least) {
  Limit limit;
  limit.least = least;
  return limit;
}

Limit above(double least) {
  Limit limit;
  limit.least = least;
  limit.excludes_least = true;
  return limit;
}

Limit at_least_and_below(double least, double most) {
  Limit limit;
  limit.least = least;
  limit.most = most;
  limit.excludes_most = true;
  return limit;
}

Limit between(double least, double most) {
  Limit limit;
  limit.least = least;
  limit.most = most;
  return limit;
}

Limit one_of(std::vector<std::string> choices) {
  Limit limit;
  limit.choices = std::move(choices);
  return limit;
}

Limit not_empty() {
  Limit limit;
  limit.not_empty = true;
  return limit;
}

std::string read_value(std::string_view text, bool& value, const Limit&) {
  if (text != "true" && text != "false") return "is neither true nor false";
  value = text == "true";
  return "";
}

std::string read_value(std::string_view text, int& value, const Limit& limit) {
  return read_number(text, value, limit, "whole number");
}

std::string read_value(std::string_view text, std::int64_t& value, const Limit& limit) {
  return read_number(text, value, limit, "whole number");
}

std::string read_value(std::string_view text, double& value, const Limit& limit) {
  return read_number(text, value, limit, "number");
}

std::string read_value(std::string_view text, std::string& value, const Limit& limit) {
  if (limit.not_empty && text.empty()) return "must not be empty";
  bool known = limit.choices.empty();
  for (const std::string& choice : limit.choices) known = known || choice == text;
  if (!known) {
    const auto nearest = nearest_name(text, limit.choices);
    return fmt::format("is not one of {}{}", fmt::join(limit.choices, ", "),
                       nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  }
  value = text;
  return "";
}

std::string write_value(bool value) {
  return value ? "true" : "false";
}
std::string write_value(int value) {
  return fmt::format("{}", value);
}
std::string write_value(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string write_value(double value) {
  return fmt::format("{}", value);
}
std::string write_value(const std::string& value) {
  return value;
}

}  // namespace trireme
