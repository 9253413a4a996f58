// Work on untrusted input by libraries that may crash over it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace trireme {

// Runs the body in a copy of this process and returns its text. Returns nothing if it crashes,
// throws, or needs more than ten seconds of processor time or 2 GiB of memory. The copy has this
// thread alone: the body must not wait for another one.
std::optional<std::string> in_child_process(const std::function<std::string()>& body);

}  // namespace trireme
