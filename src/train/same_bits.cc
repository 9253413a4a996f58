#include "train/same_bits.h"

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/small_file.h"
#include "trireme/setup/run_grid.h"

#include "train/starting_point.h"

namespace trireme {
namespace {

bool promises(const std::string& config, const std::string& origin) {
  try {
    return config_from_ini(config, origin).run.same_bits;
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return false;
  }
}

// Collective over the world. Whether the run that this start goes on with promised the same bits.
bool promised(Communicator& world, const Config& config) {
  const std::string folder = folder_of_job(config);
  const auto [anew, checkpoint, promise_broken] =
      StartingPoint::foresee(world, folder, config.run.resume);
  if (anew) return false;
  if (promise_broken) return true;
  if (checkpoint) {
    const CheckpointInfo& info = checkpoint->info();
    return info.extra.contains(kBitsAttribute) || promises(info.config, checkpoint->path());
  }
  // An earlier start that has written no checkpoint yet.
  const std::string path = folder + "/config.ini";
  const std::string text = world.read_once([&] {
    // Before the first start there may be no folder either.
    if (!look_ahead(path, ExitStatus::kRunFolder).is_there()) return std::string();
    return read_if_there(path, ExitStatus::kRunFolder).value_or("");
  });
  return !text.empty() && promises(text, path);
}

}  // namespace

BitsOfStart settle_same_bits(Communicator& world, Config& config) {
  if (!config.run.same_bits || !promised(world, config)) return {};
  BitsOfStart bits;
  bits.said = keep_same_bits(config, ranks_of_island(config, world.size()));
  bits.promise_broken = !config.run.same_bits;
  return bits;
}

}  // namespace trireme
