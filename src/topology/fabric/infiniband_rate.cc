#include "topology/fabric/infiniband_rate.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace trireme {

// Gbit/s of data of one lane: the InfiniBand Trade Association's rates less their line codes
// (8b/10b up to QDR, 64b/66b above).
double infiniband_bytes_per_second(std::string_view rate) {
  struct Speed {
    std::string_view name;
    double lane;
  };
  constexpr std::array<Speed, 10> kSpeeds = {{{"SDR", 2.0},
                                              {"DDR", 4.0},
                                              {"QDR", 8.0},
                                              {"FDR10", 10.0},
                                              {"FDR", 13.64},
                                              {"EDR", 25.0},
                                              {"HDR", 50.0},
                                              {"NDR", 100.0},
                                              {"XDR", 200.0},
                                              {"GDR", 400.0}}};
  int lanes = 0;
  const auto result = std::from_chars(rate.data(), rate.data() + rate.size(), lanes);
  if (result.ec != std::errc() || lanes < 1 || lanes > 12) return 0.0;
  rate.remove_prefix(static_cast<std::size_t>(result.ptr - rate.data()));
  if (rate.empty() || rate.front() != 'x') return 0.0;
  rate.remove_prefix(1);
  const auto speed = std::ranges::find(kSpeeds, rate, &Speed::name);
  return speed == kSpeeds.end() ? 0.0 : lanes * speed->lane * 1e9 / 8;
}

}  // namespace trireme
