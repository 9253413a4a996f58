// Descriptions of devices as JSON.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/json.h"
#include "trireme/plan/device_description.h"

namespace trireme::plan {

// Parses JSON. Throws ConfigError that names `origin`.
Json read_json(std::string_view text, const std::string& origin);

// The same as read_device, of an object that was parsed.
DeviceDescription read_device(const Json& object, const std::string& origin);

}  // namespace trireme::plan
