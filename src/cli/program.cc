#include "cli/program.h"

#include <exception>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/caught.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/comm/launcher.h"

#include "cli/commands.h"

namespace trireme::cli {
namespace {

std::string usage() {
  std::string text =
      "usage: trireme COMMAND [--KEY VALUE]...\n\n"
      "Trains neural networks on MPI clusters.\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  return text + "\ntrireme COMMAND --help lists what a command understands.";
}

Work parse(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help") return show(usage());
  const std::string& name = arguments[0];
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command.parse({arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  if (name == "--version") return parse_version({});
  const auto nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("unknown command '{}'; {}", shown(name),
                                nearest ? fmt::format("did you mean {}?", *nearest)
                                        : fmt::format("there are {}", fmt::join(names, ", "))));
}

// Runs a function. Returns its status; or, if it throws, reports the fault in one line and returns
// the fault's status. Only for work that all processes of a job do alike: the first one reports for
// all.
template <class Function>
ExitStatus guarded(const Function& function) {
  const auto report = [](std::string_view line) {
    if (launched_tasks().index == 0) report_line(line);
  };
  try {
    return function();
  } catch (...) {
    const Error error = caught(std::current_exception());
    report(error.what());
    return error.status();
  }
}

}  // namespace

int run(const Arguments& arguments) {
  Work work;
  std::optional<Runtime> runtime;
  const ExitStatus status = guarded([&] {
    work = parse(arguments);
    if (work.alone) return work.alone();
    runtime.emplace();
    return ExitStatus::kDone;
  });
  // Outside of any try: an exception that only some ranks throw must not unwind past the runtime,
  // which ends the whole job.
  if (runtime) runtime->run([&] { return work.on_ranks(*runtime); });
  return static_cast<int>(status);
}

}  // namespace trireme::cli
