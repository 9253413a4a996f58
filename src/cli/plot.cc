#include "cli/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme::cli {
namespace {

// A picture of dots, several of which form one character.
class Canvas {
 public:
  Canvas(std::size_t width, std::size_t rows, bool utf8)
      : utf8_(utf8), width_(width), rows_(rows), cells_(width * rows) {}

  std::size_t dots_across() const { return utf8_ ? 2 * width_ : width_; }
  std::size_t dots_down() const { return utf8_ ? 4 * rows_ : rows_; }

  void set(std::size_t x, std::size_t y) {
    // The bits of a braille character (Unicode 15, block 2800), by column and row of the dot.
    static constexpr std::array<std::array<unsigned char, 4>, 2> kBits = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    if (utf8_) {
      cells_[y / 4 * width_ + x / 2] |= kBits[x % 2][y % 4];
    } else {
      cells_[y * width_ + x] = 1;
    }
  }

  std::string line(std::size_t row) const {
    std::string text;
    for (std::size_t column = 0; column < width_; ++column) {
      const unsigned char cell = cells_[row * width_ + column];
      if (cell == 0) {
        text += ' ';
      } else if (utf8_) {  // U+2800 + cell
        text += '\xe2';
        text += static_cast<char>(0xa0 | cell >> 6);
        text += static_cast<char>(0x80 | (cell & 0x3f));
      } else {
        text += '*';
      }
    }
    return text;
  }

 private:
  bool utf8_;
  std::size_t width_, rows_;
  std::vector<unsigned char> cells_;
};

void draw(Canvas& canvas, const std::vector<double>& means, double least, double most) {
  const double height = static_cast<double>(canvas.dots_down() - 1);
  const double scale = most > least ? height / (most - least) : 0.0;
  bool joined = false;  // whether the curve continues from the column before
  std::size_t before = 0;
  for (std::size_t x = 0; x < means.size(); ++x) {
    if (!std::isfinite(means[x])) {
      joined = false;
      continue;
    }
    const auto y = static_cast<std::size_t>(std::lround((most - means[x]) * scale));
    // Starts next to the last dot, so that steep parts have no holes.
    std::size_t from = y;
    if (joined && before + 1 < y) from = before + 1;
    if (joined && before > y + 1) from = before - 1;
    for (std::size_t dot = std::min(from, y); dot <= std::max(from, y); ++dot) canvas.set(x, dot);
    before = y;
    joined = true;
  }
}

}  // namespace

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale(value);
    for (char& c : locale) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

std::vector<double> column_means(std::span<const double> values, std::size_t columns) {
  std::vector<double> means(columns, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t column = 0; column < columns && !values.empty(); ++column) {
    const std::size_t begin = column * values.size() / columns;
    const std::size_t end = std::max(begin + 1, (column + 1) * values.size() / columns);
    double sum = 0.0;
    int count = 0;
    for (const double value : values.subspan(begin, end - begin)) {
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
    if (count > 0) means[column] = sum / count;
  }
  return means;
}

std::vector<std::string> plot(std::span<const double> values, std::size_t width, std::size_t rows,
                              bool utf8) {
  constexpr std::size_t kScaleWidth = 10;
  if (rows < 2 || width < 2 * kScaleWidth) return {};
  Canvas canvas(width - kScaleWidth, rows, utf8);
  const std::vector<double> means = column_means(values, canvas.dots_across());
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    least = std::min(least, mean);
    most = std::max(most, mean);
  }
  if (least > most) return {};
  draw(canvas, means, least, most);
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row + 1 == rows;
    const std::string label = labelled ? plain_number(row == 0 ? most : least) : "";
    const std::string_view axis = utf8 ? (labelled ? "┤" : "│") : (labelled ? "+" : "|");
    lines.push_back(fmt::format("{:>{}} {}{}", label, kScaleWidth - 2, axis, canvas.line(row)));
  }
  return lines;
}

std::string bar(double share, std::size_t width, bool utf8) {
  static constexpr std::array<std::string_view, 8> kEighths = {"",  "▏", "▎", "▍",
                                                               "▌", "▋", "▊", "▉"};
  const double filled = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
  const auto whole = static_cast<std::size_t>(filled);
  std::string text;
  for (std::size_t i = 0; i < whole; ++i) text += utf8 ? "█" : "#";
  std::size_t used = whole;
  const auto eighth = static_cast<std::size_t>((filled - static_cast<double>(whole)) * 8.0);
  if (utf8 && eighth > 0) {
    text += kEighths[eighth];
    ++used;
  }
  for (; used < width; ++used) text += utf8 ? "─" : "-";
  return text;
}

}  // namespace trireme::cli
