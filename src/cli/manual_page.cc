#include <fmt/format.h>

#include "trireme/base/exit_status.h"

#include "cli/program_description.h"

namespace trireme::cli {
namespace {

// Escapes a text for roff: characters that roff would interpret or replace by others.
std::string roff_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c == '.' && (result.empty() || result.back() == '\n')) {
      result += "\\&.";
    } else {
      result += c;
    }
  }
  return result;
}

std::string option_entry(const OptionDescription& option) {
  std::string words = option.help;
  if (!option.choices.empty()) words += fmt::format(": {}", fmt::join(option.choices, ", "));
  const std::string unit = option.unit.empty() ? "" : option.unit + "; ";
  const std::string value = option.default_text.empty() ? "none" : option.default_text;
  words += fmt::format(" [{}default {}]", unit, value);
  for (const std::string& alias : option.aliases) words += fmt::format(" (also --{})", alias);
  return fmt::format(".TP\n.BI \\-\\-{} \" {}\"\n{}\n", roff_escaped(option.name),
                     roff_escaped(option.placeholder), roff_escaped(words));
}

std::string command_section(const DescribedCommand& command) {
  std::string text =
      fmt::format(".SS {}\n{}\n.PP\n.B {}\n", roff_escaped(command.name),
                  roff_escaped(command.summary), roff_escaped(command.description.usage));
  if (const auto& positional = command.description.positional) {
    text += fmt::format(".TP\n.I {}\n{}\n", roff_escaped(positional->name),
                        roff_escaped(positional->help));
  }
  text += ".TP\n.B \\-\\-help\nshow these options\n";
  std::string only_with;
  for (const OptionDescription& option : command.description.options) {
    if (option.only_with != only_with) {
      text += option.only_with.empty()
                  ? ".PP\nIn any case:\n"
                  : fmt::format(".PP\nOnly with\n.BR \"{}\" :\n", roff_escaped(option.only_with));
    }
    only_with = option.only_with;
    text += option_entry(option);
  }
  return text;
}

}  // namespace

std::string manual_page(const std::vector<DescribedCommand>& commands) {
  std::string text = fmt::format(
      R"(.\" Written by `trireme completion man`.
.TH TRIREME 1 "" "Trireme {0}" "User Commands"
.SH NAME
trireme \- train neural networks on MPI clusters
.SH SYNOPSIS
.B trireme
.I COMMAND
.RI [ ARGUMENT ]...
.RB [ \-\-\fIKEY\fP
.IR VALUE ]...
.PP
.B srun trireme train \-\-config
.I FILE
.SH DESCRIPTION
Trireme trains neural networks on clusters, over MPI, with data, pipeline and tensor parallelism that
compose.
A flag may be written
.BI \-\-key " value"
or
.BI \-\-key= value\fR.
A key with a section,
.BR section.key ,
may also stand in the INI file of
.BR \-\-config ;
flags win over it.
A job that is started again goes on from its newest checkpoint.
.SH COMMANDS
)",
      TRIREME_VERSION);
  for (const DescribedCommand& command : commands) text += command_section(command);
  text += ".SH EXIT STATUS\nThe same on all ranks.\n";
  for (const auto& [status, meaning] : kExitStatusMeanings) {
    text += fmt::format(".TP\n.B {}\n{}.\n", static_cast<int>(status), roff_escaped(meaning));
  }
  return text + ".SH SEE ALSO\n.BR mpiexec (1),\n.BR srun (1),\n.BR sbatch (1)\n";
}

}  // namespace trireme::cli
