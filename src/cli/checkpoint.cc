#include "trireme/io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/text.h"
#include "trireme/io/run_branch.h"

#include "cli/actions.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Lists the checkpoints at a path: the file itself, or those in a folder, or, for a run's folder,
// those one level below.
std::vector<CheckpointFile> files_at(const std::string& path) {
  const FileFacts facts = look_ahead(path, ExitStatus::kCheckpoint);
  if (!facts.is_there()) {
    throw CheckpointError(path +
                          ": No such file or directory; expected a checkpoint, or a run's folder");
  }
  if (!facts.is_folder()) {
    const CheckpointContents contents = inspect_checkpoint(path);
    return {{contents.info.step, path, contents.file_bytes}};
  }
  std::vector<CheckpointFile> files = list_checkpoints(path);
  if (files.empty()) files = list_checkpoints((fs::path(path) / "checkpoints").string());
  if (files.empty()) {
    throw CheckpointError(fmt::format(
        "{}: there are no checkpoints, neither there nor in its folder checkpoints", path));
  }
  return files;
}

ExitStatus list(const std::string& path) {
  print_line(fmt::format("{:>10} {:>10}  {}", "step", "size", "file"));
  for (const CheckpointFile& file : files_at(path)) {
    print_line(fmt::format("{:>10} {:>10}  {}", file.step,
                           size_text(static_cast<std::uint64_t>(file.bytes)), file.path));
  }
  return ExitStatus::kDone;
}

// Returns "parameters" for "parameters/blocks.0.norm.weight".
std::string group_of(const CheckpointTensor& tensor) {
  return tensor.name.substr(0, tensor.name.find('/'));
}

std::string group_lines(const CheckpointContents& contents) {
  struct Group {
    std::int64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<std::string, Group> groups;
  for (const CheckpointTensor& tensor : contents.tensors) {
    Group& group = groups[group_of(tensor)];
    ++group.tensors;
    group.elements += tensor.shape.elements();
    group.bytes += tensor.bytes();
  }
  std::string text;
  for (const auto& [name, group] : groups) {
    text += fmt::format("{:<18}{} tensors, {} elements, {}\n", name, group.tensors, group.elements,
                        size_text(static_cast<std::uint64_t>(group.bytes)));
  }
  return text;
}

std::string tensor_lines(const CheckpointContents& contents) {
  std::size_t width = 0;
  for (const CheckpointTensor& tensor : contents.tensors) {
    width = std::max(width, tensor.name.size());
  }
  std::string text;
  for (const CheckpointTensor& tensor : contents.tensors) {
    text += fmt::format("  {:<{}}  {} {}\n", tensor.name, width, name_of(tensor.dtype),
                        tensor.shape.to_string());
  }
  return text;
}

// Prints the contents of a checkpoint, or of the newest if there are several.
ExitStatus inspect(const std::string& path) {
  const std::string file = files_at(path).back().path;
  const CheckpointContents contents = inspect_checkpoint(file);
  const CheckpointInfo& info = contents.info;
  std::string text;
  const auto add = [&](std::string_view what, const std::string& value) {
    text += fmt::format("{:<17} {}\n", what, value);
  };
  add("file", file);
  add("size", size_text(static_cast<std::uint64_t>(contents.file_bytes)));
  add("format version", std::to_string(info.format_version));
  add("step", std::to_string(info.step));
  add("samples", std::to_string(info.samples));
  add("seed", std::to_string(info.seed));
  for (const auto& [name, value] : info.extra) {
    // Long texts, such as a tokenizer's model, are shown by their size. But a table of algorithms
    // is there to be read.
    const bool short_text = name.starts_with("algorithms_") ||
                            (value.size() <= 80 && value.find('\n') == std::string::npos);
    add(name, short_text ? value : size_text(value.size()));
  }
  text += group_lines(contents);
  text += "\nconfiguration\n" + info.config;
  if (!text.ends_with('\n')) text += '\n';
  text += "\ntensors\n" + tensor_lines(contents);
  text.pop_back();
  print_line(text);
  return ExitStatus::kDone;
}

ExitStatus verify(const std::string& path) {
  ExitStatus status = ExitStatus::kDone;
  for (const CheckpointFile& file : files_at(path)) {
    try {
      const CheckpointContents contents = verify_checkpoint(file.path);
      print_line(fmt::format("{}: good, step {}, {}", file.path, contents.info.step,
                             size_text(static_cast<std::uint64_t>(contents.file_bytes))));
    } catch (const CheckpointError& error) {
      report_line(error.what());
      status = error.status();
    }
  }
  return status;
}

// Removes what earlier branches of the run have left behind, but never what the run continues from.
ExitStatus prune(const std::string& path) {
  if (const FileFacts facts = look_ahead(path, ExitStatus::kRunFolder); !facts.is_folder()) {
    throw RunFolderError(
        fmt::format("{}: {}; expected the folder of a run", path,
                    facts.is_there() ? "not a folder" : "No such file or directory"));
  }
  const std::optional<RunBranch> branch = read_branch(path);
  if (branch && branch->unfinished) {
    throw RunFolderError(fmt::format(
        "{}: a start was interrupted while it moved files to superseded/{}; the next start of the "
        "run completes that, prune afterwards",
        path, branch->unfinished->generation));
  }
  const std::vector<SupersededBranch> superseded = list_superseded(path);
  if (superseded.empty()) print_line(path + ": nothing is superseded");
  const bool on_its_own = !list_checkpoints((fs::path(path) / "checkpoints").string()).empty();
  for (const SupersededBranch& old : superseded) {
    const std::string name = fmt::format("superseded/{}/", old.generation);
    if (branch && branch->origin.starts_with(name) && !on_its_own) {
      print_line(fmt::format("{}: kept, the run goes on from {} in it", old.path, branch->origin));
      continue;
    }
    std::error_code error;
    fs::remove_all(old.path, error);
    if (error) throw RunFolderError(fmt::format("{}: {}", old.path, error.message()));
    print_line(fmt::format("{}: removed, {}, {}", old.path, counted(old.checkpoints, "checkpoint"),
                           size_text(static_cast<std::uint64_t>(old.bytes))));
  }
  return ExitStatus::kDone;
}

struct CheckpointAction {
  std::string name;
  ExitStatus (*run)(const std::string& path);
};

}  // namespace

Work parse_checkpoint(const Arguments& arguments) {
  std::vector<std::string> words;
  bool superseded = false;
  Options options("trireme checkpoint list|inspect|verify|prune PATH");
  options.add("superseded", superseded, "",
              "prune: remove what branches of the run have left in its folder superseded");
  options.add_positional("PATH", words,
                         "a run's folder, its folder of checkpoints, or one checkpoint; inspect "
                         "takes the newest, verify checks every byte and ends with 4 where one "
                         "file is bad, prune takes a run's folder",
                         {"list", "inspect", "verify", "prune"});
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("checkpoint");
  if (words.empty())
    throw ConfigError("checkpoint list|inspect|verify|prune PATH: nothing is given");
  static const std::vector<CheckpointAction> actions = {
      {"list", list}, {"inspect", inspect}, {"verify", verify}, {"prune", prune}};
  const CheckpointAction& action = find_action("checkpoint", actions, words[0]);
  if (words.size() != 2) {
    throw ConfigError(fmt::format("checkpoint {} takes one PATH, not {}: a run's folder or a file",
                                  action.name, words.size() - 1));
  }
  if (superseded != (action.run == prune)) {
    throw ConfigError(
        superseded ? fmt::format("checkpoint {} takes no --superseded; prune does", action.name)
                   : "checkpoint prune removes nothing without --superseded: checkpoint prune "
                     "--superseded RUN");
  }
  return {.alone = [&action, path = words[1]] { return action.run(path); }, .on_ranks = {}};
}

}  // namespace trireme::cli
