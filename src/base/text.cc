#include "trireme/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace trireme {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = unit == 0 || value >= 99.95;
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
               : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

double shortest(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  std::array<char, 32> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double result = 0.0;
  std::from_chars(text.data(), written.ptr, result);
  return result;
}

std::string duration_text(double seconds) {
  constexpr double kMost = 1e15;  // a file may contain any number
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, kMost));
  if (whole >= 86400) return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

std::string time_text(double seconds) {
  // What would be rounded up to one of the next unit is one of that.
  if (seconds >= 59.995) return duration_text(std::max(seconds, 60.0));
  if (seconds >= 0.99995) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 0.99995e-3 || !(seconds > 0.0)) return fmt::format("{:.1f} ms", 1e3 * seconds);
  return microseconds_text(seconds) + " us";
}

std::string microseconds_text(double seconds) {
  return fmt::format("{:.1f}", 1e6 * seconds);
}

std::string short_number(double value) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}};
  // Numbers below 10,000 need no unit. A value that rounds up to 1,000 of a unit is 1 of the next.
  if (std::abs(value) >= 999.5 && std::abs(value) < 9999.5) return fmt::format("{:.0f}", value);
  for (const auto& [unit, name] : kUnits) {
    if (std::abs(value) >= unit * 0.9995) return fmt::format("{:.3g}{}", value / unit, name);
  }
  return fmt::format("{:.3g}", value);
}

std::string plain_number(double value) {
  return std::abs(value) < 9999.5 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string utc_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm fields{};
  std::array<char, 64> text{};
  gmtime_r(&time, &fields);
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &fields)};
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    words.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace trireme
