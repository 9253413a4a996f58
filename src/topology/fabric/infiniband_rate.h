// The rates of InfiniBand links.
#pragma once

#include <string_view>

namespace trireme {

// Returns the bytes of data that "4xHDR" carries in each direction in a second; 0 if the words are
// unknown.
double infiniband_bytes_per_second(std::string_view rate);

}  // namespace trireme
