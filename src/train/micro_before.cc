#include "train/micro_before.h"

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::optional<MicroBefore> micro_in(const Checkpoint& checkpoint) {
  try {
    const Config before = config_from_ini(checkpoint.info().config, checkpoint.path());
    const std::optional<int> came_to = before.batch.micro.number();
    const std::optional<int> samples = came_to ? came_to : micro_of_keys(before);
    if (!samples) return {};
    return MicroBefore{*samples, before.grid.shape()};
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return {};
  }
}

}  // namespace

std::optional<MicroBefore> micro_before(const std::optional<Checkpoint>& checkpoint,
                                        const Config& config) {
  if (!checkpoint || micro_of_keys(config)) return {};
  return micro_in(*checkpoint);
}

}  // namespace trireme
