// What a site knows of its machine: a device, and the constants of a network, fitted to runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/plan/device_description.h"
#include "trireme/plan/network_costs.h"

namespace trireme::plan {

struct SiteDescription {
  DeviceDescription device;
  std::string network = {};  // the network that the constants are of; empty: none were fitted
  std::optional<NetworkDescription::Constants> constants = {};
};

// The text of a file: that of a device (write_device) with a part "network".
std::string write_site(const SiteDescription& site);
// Reads it, or the file of a device alone. Throws ConfigError as read_device does.
SiteDescription read_site(std::string_view text, const std::string& origin);

}  // namespace trireme::plan
