// The unit in which progress is told.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"

namespace trireme::tasks {

struct Unit {
  std::string_view one = "token", many = "tokens";

  std::string rate() const;      // "tokens/s"
  std::string rate_key() const;  // "tokens_per_s", in files; `many` is the key of the count
  bool operator==(const Unit&) const = default;
};

// Returns the units of all tasks, each once. The first is that of files that were written before
// there were others.
const std::vector<Unit>& units();
// The unit whose rate the object has, whatever wrote it; the first one where it has none.
Unit unit_in(const Json& object);

}  // namespace trireme::tasks
