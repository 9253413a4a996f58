// Curves and bars as text.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::cli {

// Returns whether the terminal's locale is UTF-8.
bool locale_is_utf8();

// Returns the means of `values` in `columns` parts of equal length, one per column; fewer values
// than columns are spread out. Values that are not finite are left out; a part without finite
// values gives NaN.
std::vector<double> column_means(std::span<const double> values, std::size_t columns);

// Returns lines of `width` characters: the curve of `values` over their index, with the scale to
// its left. With `utf8` a character has 2 x 4 dots (braille), otherwise it is one dot. Returns no
// lines if no value is finite or the room is too small (fewer than 2 rows or 20 characters).
std::vector<std::string> plot(std::span<const double> values, std::size_t width, std::size_t rows,
                              bool utf8);

// Returns a bar of `width` characters, of which the part `share` is filled; `share` is clamped to 0
// to 1.
std::string bar(double share, std::size_t width, bool utf8);

}  // namespace trireme::cli
