#include <memory>

#include "trireme/comm/launcher.h"
#include "trireme/config/config.h"
#include "trireme/train/signals.h"
#include "trireme/train/trainer.h"

#include "cli/commands.h"

namespace trireme::cli {

Work parse_train(const Arguments& arguments) {
  // One rank reads the file for all, which needs MPI. Mistakes in flags are reported before that.
  if (launched_tasks().count > 1 && config_file_of(arguments)) {
    const auto signals = std::make_shared<const StopSignals>();
    return {.alone = {}, .on_ranks = [arguments, signals](Runtime& runtime) {
              const auto read = [&](const std::string& path) {
                return runtime.world().read_once([&] { return read_run_config(path); });
              };
              return train(runtime, parse_config(arguments, {}, read).config, *signals);
            }};
  }
  ParsedConfig parsed = parse_config(arguments);
  if (parsed.help) return show_help(std::move(*parsed.help));
  // Made here and not when the work runs, because MPI's threads must inherit the blocked signals.
  const auto signals = std::make_shared<const StopSignals>();
  return {.alone = {}, .on_ranks = [config = std::move(parsed.config), signals](Runtime& runtime) {
            return train(runtime, config, *signals);
          }};
}

}  // namespace trireme::cli
