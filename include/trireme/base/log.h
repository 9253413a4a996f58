// Lines for the user. Each call writes one whole line with a single write(2), so that lines of
// several ranks on one terminal never mix. Rank 0 speaks; other ranks speak only to report a fault.
#pragma once

#include <string_view>

namespace trireme {

// A line on standard output, or several with '\n' between them: results and progress. Control
// characters are escaped (base/printable.h), since the text may hold names from outside.
void print_line(std::string_view text);

// Bytes on standard output as they are: what another program reads, and what commands a terminal.
void print_bytes(std::string_view bytes);

// One line on standard error, prefixed "trireme: ": faults and warnings. Control characters are
// escaped.
void report_line(std::string_view line);

}  // namespace trireme
