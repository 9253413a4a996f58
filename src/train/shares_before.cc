#include "train/shares_before.h"

#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/shares.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

constexpr std::string_view kBalanceAuto = "batch.balance auto: ";

// Empty where there are none.
std::vector<int> shares_in(const Checkpoint& checkpoint) {
  try {
    const Config before = config_from_ini(checkpoint.info().config, checkpoint.path());
    return before.batch.balance.shares();
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return {};
  }
}

}  // namespace

std::string take_over_shares(const std::optional<Checkpoint>& checkpoint,
                             const ComputeDevice& device, const GridShape& grid, Config& config) {
  BatchBalance& balance = config.batch.balance;
  if (!balance.is_auto()) return "";
  if (grid.extent(kDataAxes) == 1) {
    balance = BatchBalance::automatic();
    return fmt::format("{}one data replica has nothing to balance", kBalanceAuto);
  }
  balance = BatchBalance::automatic(checkpoint ? shares_in(*checkpoint) : std::vector<int>());
  const bool had = !balance.shares().empty();
  const bool fits = work_of_step(config, grid, {}).has_shares();
  std::string said =
      fits ? fmt::format("shares of {} micro-batches, as before", shares_text(balance.shares()))
           : "even shares at first";
  if (had && !fits) {
    said += fmt::format(", since those of before ({}) are of another batch or grid",
                        shares_text(balance.shares()));
    balance = BatchBalance::automatic();
  }
  if (device.context.device.kind != DeviceKind::kCpu) {
    said += "; they stay, because on GPUs the hosts' times tell no speed: give the speeds";
  }
  return fmt::format("{}{}", kBalanceAuto, said);
}

}  // namespace trireme
