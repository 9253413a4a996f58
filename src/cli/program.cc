#include "cli/program.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/caught.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/comm/launcher.h"

#include "cli/commands.h"
#include "cli/commit.h"

namespace trireme::cli {
namespace {

std::string usage() {
  std::string text =
      "usage: trireme COMMAND [--KEY VALUE]...\n\n"
      "Trains neural networks on MPI clusters.\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  return text + "\ntrireme COMMAND --help (trireme help COMMAND) lists what a command understands.";
}

Work parse(const Arguments& arguments) {
  const bool asks = !arguments.empty() &&
                    (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help");
  if (arguments.size() == (asks ? 1 : 0)) return show(usage());
  const std::string& name = arguments[asks ? 1 : 0];
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (command.name != name) continue;
    Arguments rest(arguments.begin() + (asks ? 2 : 1), arguments.end());
    if (asks) rest.emplace_back("--help");
    return command.parse(rest);
  }
  if (name == "--version") return parse_version({});
  const auto nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("unknown command '{}'; {}", shown(name),
                                nearest ? fmt::format("did you mean {}?", *nearest)
                                        : fmt::format("there are {}", fmt::join(names, ", "))));
}

// Reports a fault that all processes of a job have alike: the first one reports for all.
int report(const std::exception_ptr& fault) {
  const Error error = caught(fault);
  if (launched_tasks().index == 0) report_line(error.what());
  return static_cast<int>(error.status());
}

// Whether other processes of the job may be waiting in MPI for one whose arguments are wrong.
bool others_may_wait(const Arguments& arguments) {
  if (launched_tasks().count == 1) return false;
  const auto command = std::ranges::find(commands(), arguments.at(0), &Command::name);
  return command == commands().end() || command->on_ranks;
}

// Why standard output could not be written; empty if it could. Nobody misses a line about a pipe
// whose reader has ended, as `trireme ... | head` does.
std::string output_fault() {
  const int reason = standard_output_fault();
  if (reason == 0) return {};
  if (launched_tasks().index == 0 && reason != EPIPE) {
    report_line(fmt::format("standard output cannot be written: {}", std::strerror(reason)));
  }
  return "fault";
}

}  // namespace

int run(const Arguments& arguments) {
  Work work;
  std::exception_ptr wrong;
  std::optional<Runtime> runtime;
  try {
    work = parse(arguments);
  } catch (...) {
    wrong = std::current_exception();
    if (!others_may_wait(arguments)) return report(wrong);
  }
  try {
    if (work.alone) {
      const ExitStatus done = work.alone();
      const bool untold = done == ExitStatus::kDone && !output_fault().empty();
      return static_cast<int>(untold ? ExitStatus::kRunFolder : done);
    }
    runtime.emplace(RuntimeOptions{.call = {.commit = program_and_commit(), .arguments = arguments},
                                   .algorithms = {}});
  } catch (...) {
    return report(wrong ? wrong : std::current_exception());
  }
  // Outside of any try: an exception that only some ranks throw must not unwind past the runtime,
  // which ends the whole job.
  runtime->run([&] {
    if (wrong) std::rethrow_exception(wrong);
    const ExitStatus done = work.on_ranks(*runtime);
    if (done != ExitStatus::kDone) return done;
    return runtime->world().read_once(output_fault).empty() ? done : ExitStatus::kRunFolder;
  });
}

}  // namespace trireme::cli
