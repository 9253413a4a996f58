// Text as people write and read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// A number of bytes, of memory and of files, in units of 1024 with three significant digits or the
// four of a number below 1024: "768 B", "64 KiB", "2.5 MiB", "11.8 GiB". (Rates of networks and
// disks are in units of 1000, as their makers have them.)
std::string size_text(std::uint64_t bytes);
// The double that is written with the fewest digits that tell the value from other floats: 0.1 for
// 0.1f, whose value is 0.10000000149011612.
double shortest(float value);
std::string duration_text(double seconds);  // "4 s", "2 min 05 s", "1 h 30 min", "3 d 04 h"
// A measured or predicted time: "12.5 us", "250.0 ms", "1.25 s"; from one minute on as
// duration_text does.
std::string time_text(double seconds);
std::string microseconds_text(double seconds);  // "12.5", for columns of microseconds
// Three significant digits, or the four of a number below 10,000, for labels and counts: "0.25",
// "1234", "12.3 k", "4.56 M".
std::string short_number(double value);
// Four significant digits, or more of a large number: "0.25", "2.346", "16777216". No exponent,
// but below 0.0001.
std::string plain_number(double value);
// "1 node", "3 nodes"
std::string counted(std::int64_t count, std::string_view what);
// Seconds since 1970 as date and time in UTC: "2026-01-31 23:59:59".
std::string utc_text(std::int64_t seconds);

// Returns the words between the commas of a list; one empty word for an empty list.
std::vector<std::string> split_list(std::string_view list);

}  // namespace trireme
