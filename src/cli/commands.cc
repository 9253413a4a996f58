#include "cli/commands.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/launcher.h"

namespace trireme::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"prepare", "turn text or pictures into shards", parse_prepare, true},
      {"data", "list, inspect or verify shards", parse_data},
      {"train", "train a model on all ranks, from the newest checkpoint on", parse_train, true},
      {"eval", "measure how well a model does on held-out data", parse_eval, true},
      {"generate", "continue texts with a model", parse_generate, true},
      {"predict", "say what is on pictures, or fill in what is masked in texts", parse_predict,
       true},
      {"import", "turn safetensors of other programs into a checkpoint", parse_import, true},
      {"export", "write a checkpoint's weights for other programs", parse_export, true},
      {"checkpoint", "list, inspect, verify or prune checkpoints", parse_checkpoint},
      {"top", "watch a run from its folder", parse_top},
      {"memory", "what each rank of a run will hold, on any grid, without running it",
       parse_memory},
      {"plan", "how fast a run will be on nodes that are named, and the best layout", parse_plan},
      {"job", "write or submit a Slurm job that trains", parse_job},
      {"scale", "measure how training scales over nodes, and report it", parse_scale, true},
      {"bench", "measure collectives, operations or a training step here", parse_bench, true},
      {"topo", "what the network between the nodes is", parse_topo, true},
      {"doctor", "what of this node would stop a run or slow it down", parse_doctor, true},
      {"completion", "write a shell's completion or the manual page", parse_completion},
      {"version", "what this program was built with and what it uses here", parse_version},
  };
  return table;
}

Work show(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return {.alone =
              [text = std::move(text)] {
                if (launched_tasks().index == 0) print_bytes(text + "\n");
                return ExitStatus::kDone;
              },
          .on_ranks = {}};
}

Work show_help(CommandDescription command) {
  Work work = show(help_text(command));
  work.described = std::move(command);
  return work;
}

void require_single_process(std::string_view command) {
  const LaunchedTasks tasks = launched_tasks();
  if (tasks.count == 1) return;
  throw ConfigError(fmt::format("trireme {} is one process, but {} started {}; start it alone",
                                command, tasks.launcher, tasks.count));
}

}  // namespace trireme::cli
