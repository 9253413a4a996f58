#include <memory>

#include "trireme/train/config.h"
#include "trireme/train/signals.h"
#include "trireme/train/trainer.h"

#include "cli/commands.h"

namespace trireme::cli {

Work parse_train(const Arguments& arguments) {
  ParsedConfig parsed = parse_config(arguments);
  if (parsed.help) return show_help(describe_config());
  // Now, and not with the work: MPI starts threads, which must inherit the blocked signals.
  const auto signals = std::make_shared<const StopSignals>();
  return {.alone = {}, .on_ranks = [config = std::move(parsed.config), signals](Runtime& runtime) {
            return train(runtime, config, *signals);
          }};
}

}  // namespace trireme::cli
