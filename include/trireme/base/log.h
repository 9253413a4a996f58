// Lines for the user. Each call writes one whole line with a single write(2), so that lines of
// several ranks on one terminal never mix. Rank 0 speaks; other ranks speak only to report a fault.
#pragma once

#include <string_view>

namespace trireme {

// One line on standard output: results and progress.
void print_line(std::string_view line);

// One line on standard error, prefixed "trireme: ": faults and warnings.
void report_line(std::string_view line);

}  // namespace trireme
