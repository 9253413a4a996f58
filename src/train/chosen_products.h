// The algorithms of matrix products that a run takes from a file (cuda.products).
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/ops/context.h"

namespace trireme {

// The attribute of checkpoints with the algorithms of products that the run takes.
inline constexpr const char* kProductsAttribute = "products";

struct ChosenProducts {
  std::string line = {};      // for the user; empty: none are asked for
  std::string file = {};      // of those that are taken, as write_products makes it; empty: none
  std::string mark = "none";  // tells them from others: "23 algorithms, xxh64:..."
};

// Collective over the world. From then on products take the algorithms of the checkpoint that this
// start goes on from, or else of the file that cuda.products names, as far as they fit every rank.
// Throws ConfigError if the file is none.
ChosenProducts choose_products(Runtime& runtime, ops::Context& ctx,
                               const std::optional<Checkpoint>& checkpoint, const Config& config);

}  // namespace trireme
