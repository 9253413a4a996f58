#include "cli/topo.h"

#include <utility>

#include "cli/actions.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

struct TopoAction {
  std::string_view name;
  std::vector<std::string_view> flags;
  ExitStatus (*alone)(const TopoArguments&);               // or nullptr
  ExitStatus (*on_ranks)(Runtime&, const TopoArguments&);  // or nullptr
};

const std::vector<TopoAction>& actions() {
  static const std::vector<TopoAction> table = {
      {"show", {"dump", "slurm"}, topo_show, nullptr},
  };
  return table;
}

void declare(Options& options, TopoArguments& given) {
  options.add("dump", given.dump, "file", "show: output of ibnetdiscover; empty: none");
  options.add("slurm", given.slurm, "file",
              "show: Slurm's topology.conf, or the output of scontrol show topology; empty: none");
}

}  // namespace

Work parse_topo(const Arguments& arguments) {
  TopoArguments given;
  std::vector<std::string> words;
  Options options("trireme topo show [--KEY VALUE]...");
  options.add_positional("WHAT", words, "show: the fabric that the given files describe", {"show"});
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  const TopoAction& action = find_only_action("topo", actions(), words);
  refuse_flags_of_others("topo", action, options, arguments);
  if (action.on_ranks != nullptr) {
    return {.alone = {}, .on_ranks = [&action, given = std::move(given)](Runtime& runtime) {
              return action.on_ranks(runtime, given);
            }};
  }
  require_single_process("topo");
  return {.alone = [&action, given = std::move(given)] { return action.alone(given); },
          .on_ranks = {}};
}

}  // namespace trireme::cli
