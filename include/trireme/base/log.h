// Output for the user. Each call writes whole lines with a single write(2), so that lines of
// several ranks on one terminal never mix. Rank 0 prints; other ranks print only to report a fault.
#pragma once

#include <string_view>

namespace trireme {

// Prints a line to standard output, or several separated by '\n': results and progress. Control
// characters are escaped (base/printable.h), because the text may contain names from outside.
void print_line(std::string_view text);

// Writes bytes to standard output unchanged: for output that another program reads, and for
// terminal control sequences.
void print_bytes(std::string_view bytes);

// From now on print_line() writes to standard error: standard output is a file for programs.
void lines_to_standard_error();

// The errno of the first write to standard output that failed (it is full, or closed); 0 while none
// has. Writing never throws: a command goes on, and ends with kRunFolder where it would have ended
// with kDone. One that may go on for long asks here, and ends.
int standard_output_fault();

// Prints one line to standard error, with the prefix "trireme: ": faults and warnings. Control
// characters are escaped.
void report_line(std::string_view line);

}  // namespace trireme
