// What src/plan/devices.json holds beside the devices: the shares of kernels.
#pragma once

#include <string_view>

namespace trireme::plan {

// Returns the share of a copy's rate at which our GPU kernel of this name goes through the bytes
// that it is counted for; for products and convolutions, that of the rate of large products.
double kernel_share(std::string_view operation);

}  // namespace trireme::plan
