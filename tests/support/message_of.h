// Returns the message of the error that a call throws, or "no error".
#pragma once

#include <functional>
#include <string>

#include "trireme/base/error.h"

namespace trireme::testing {

template <class Refusal = ConfigError>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Refusal& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace trireme::testing
