#include "known_devices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

#include "device_file.h"

namespace trireme::plan {
namespace {

constexpr std::string_view kText =
#include "devices_json.inc"
    ;
constexpr const char* kOrigin = "src/plan/devices.json";

const Json& whole_file() {
  static const Json file = read_json(kText, kOrigin);
  return file;
}

std::vector<DeviceDescription> read_devices() {
  std::vector<DeviceDescription> devices;
  for (const Json& one : whole_file().at("devices").items()) {
    devices.push_back(read_device(one, kOrigin));
  }
  std::ranges::sort(devices, {}, &DeviceDescription::name);
  return devices;
}

std::unordered_map<std::string_view, double> read_shares() {
  std::unordered_map<std::string_view, double> shares;
  for (const Json& one : whole_file().at("kernels").items()) {
    shares[one.at("operation").text()] = one.at("share").number();
  }
  return shares;
}

}  // namespace

const std::vector<DeviceDescription>& known_devices() {
  static const std::vector<DeviceDescription> devices = read_devices();
  return devices;
}

const DeviceDescription& known_device(std::string_view name) {
  std::vector<std::string> names;
  for (const DeviceDescription& one : known_devices()) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  const std::optional<std::string> nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("device {} is unknown; {}there are {}", printable(name),
                                nearest ? fmt::format("did you mean {}? ", *nearest) : "",
                                fmt::join(names, ", ")));
}

double kernel_share(std::string_view operation) {
  static const std::unordered_map<std::string_view, double> shares = read_shares();
  const auto found = shares.find(operation);
  return found == shares.end() ? shares.at("others") : found->second;
}

}  // namespace trireme::plan
