#include "io/prepare/byte_stream.h"

#include <algorithm>
#include <vector>

namespace trireme {

std::uint64_t FileBytes::lines_before() const {
  if (lines_before_) return *lines_before_;
  constexpr std::size_t kReadBytes = std::size_t{1} << 20;
  std::uint64_t lines = 0;
  FileBytes before(path_, 0, begin_);
  std::vector<char> bytes(begin_ == 0 ? 0 : kReadBytes);
  while (const std::size_t size = bytes.empty() ? 0 : before.read(bytes.data(), bytes.size())) {
    lines += static_cast<std::uint64_t>(
        std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
  }
  lines_before_ = lines;
  return lines;
}

}  // namespace trireme
