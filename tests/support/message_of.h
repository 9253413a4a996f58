// What a call is refused with.
#pragma once

#include <functional>
#include <string>

#include "trireme/base/error.h"

namespace trireme::testing {

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace trireme::testing
