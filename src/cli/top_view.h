// What `trireme top` shows, as text.
#pragma once

#include <string>
#include <vector>

#include "trireme/report/run_history.h"

namespace trireme::cli {

struct ViewSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
  bool whole = false;  // what takes more room is not cut: the view is for no terminal
};

// The characters of UTF-8 text, and the first `columns` of them.
std::size_t characters_of(const std::string& text);
std::string cut(const std::string& text, std::size_t columns);

// Returns a line for each row of cells: all columns but the last are as wide as their widest cell.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows);

// Returns at most size.rows lines of at most size.columns characters, without control characters;
// with size.whole as many and as long ones as there are.
// The loss curve takes the remaining room.
std::vector<std::string> top_view(const RunHistory& history, const ViewSize& size, bool utf8);

}  // namespace trireme::cli
