// A curve in text.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::cli {

// Whether the terminal's locale says that it shows more than ASCII.
bool locale_is_utf8();

// Means of `values` in `columns` parts of equal length, one for each column; fewer values than
// columns are spread out. Values that are not finite are left out; NaN where nothing is left.
std::vector<double> column_means(std::span<const double> values, std::size_t columns);

// Lines of `width` characters: the curve of `values` over their index, the scale to its left. With
// `utf8` a character has 2 x 4 dots (braille), otherwise it is one dot. No lines where no value is
// finite, or there is no room (fewer than 2 rows or 20 characters).
std::vector<std::string> plot(std::span<const double> values, std::size_t width, std::size_t rows,
                              bool utf8);

// `share` (0 to 1, others are taken to the nearer end) of `width` characters filled.
std::string bar(double share, std::size_t width, bool utf8);

}  // namespace trireme::cli
