// The subcommands of `trireme`. Each parses its arguments and returns the work to do, so that
// mistakes in the arguments are reported before MPI starts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/exit_status.h"
#include "trireme/base/options.h"
#include "trireme/comm/runtime.h"

namespace trireme::cli {

using Arguments = std::vector<std::string>;  // those after the command's name

// Exactly one of the two is set.
struct Work {
  std::function<ExitStatus()> alone;             // by this process; MPI is never started
  std::function<ExitStatus(Runtime&)> on_ranks;  // by all processes that the launcher started

  // Set for a command that was asked for --help: the contents, also for the manual page and
  // completions.
  std::optional<CommandDescription> described = {};
};

struct Command {
  std::string_view name;
  std::string_view summary;         // one line for --help
  Work (*parse)(const Arguments&);  // throws ConfigError
  bool on_ranks = false;            // whether all ranks of a launcher may run it together
};

// The commands in the order of --help.
const std::vector<Command>& commands();

// Returns work that prints a text, only once if a launcher started several processes.
Work show(std::string text);

// Returns work that prints the text of --help. Every command returns it when it is asked for help.
Work show_help(CommandDescription command);

// Throws ConfigError if a launcher started several processes for a command that is a single
// process.
void require_single_process(std::string_view command);

Work parse_bench(const Arguments& arguments);
Work parse_checkpoint(const Arguments& arguments);
Work parse_completion(const Arguments& arguments);
Work parse_data(const Arguments& arguments);
Work parse_doctor(const Arguments& arguments);
Work parse_eval(const Arguments& arguments);
Work parse_export(const Arguments& arguments);
Work parse_generate(const Arguments& arguments);
Work parse_import(const Arguments& arguments);
Work parse_job(const Arguments& arguments);
Work parse_memory(const Arguments& arguments);
Work parse_plan(const Arguments& arguments);
Work parse_predict(const Arguments& arguments);
Work parse_prepare(const Arguments& arguments);
Work parse_scale(const Arguments& arguments);
Work parse_top(const Arguments& arguments);
Work parse_topo(const Arguments& arguments);
Work parse_train(const Arguments& arguments);
Work parse_version(const Arguments& arguments);

}  // namespace trireme::cli
