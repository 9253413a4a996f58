// The layouts that a configuration leaves open, and configurations with one of them.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/plan/layout_search.h"

namespace trireme {

using GivenKeys = std::set<std::string, std::less<>>;  // Options::given

// Returns the keys that the user chose. The record of a run (RUN/config.ini) has all keys, so what
// it says of a layout was that run's, and only flags choose.
GivenKeys chosen_keys(const Options& options);

// What may be chosen: the keys of the layout that are not among those that were given. Tensor ranks
// share a node of so many ranks. Throws ConfigError where what is given contradicts itself.
plan::LayoutSpace layout_space(const Config& config, const GivenKeys& given,
                               const models::Model& model, int ranks_of_node);

// Returns the configuration with that layout, written out.
Config with_layout(const Config& config, const plan::Layout& layout);

// The layout of a configuration that says all of it, on so many ranks. Throws ConfigError.
plan::Layout layout_of(const Config& config, int ranks);

// Returns the dry run of the configuration with that layout, on such devices; nothing where the
// run cannot have it. `why_not`, if it is not null, is set to the reason then.
std::optional<plan::DryRunInput> layout_input(const Config& config, const models::Model& model,
                                              const plan::Layout& layout,
                                              const plan::DryDevice& device,
                                              std::string* why_not = nullptr);

// A layout as flags: "--grid.data 8 --grid.tensor 4 ...".
std::string layout_flags(const plan::Layout& layout);

}  // namespace trireme
