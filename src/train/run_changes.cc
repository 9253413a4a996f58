#include "train/run_changes.h"

#include <algorithm>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tasks/texts.h"

namespace trireme {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// "(a; b; c)", or the beginning of a long list.
std::string list_of_lines(const std::vector<std::string>& lines) {
  constexpr std::size_t kMost = 8;
  if (lines.size() <= kMost) return fmt::format("({})", fmt::join(lines, "; "));
  return fmt::format("({}; and {} more)", fmt::join(std::span(lines).first(kMost), "; "),
                     lines.size() - kMost);
}

// Describes a change of data. Of a long mixture it lists only the parts that differ.
ChangedSetting changed_data(const DataAttribute& attribute, const std::string& before) {
  ChangedSetting change{attribute.mark.setting, "", "", attribute.on_change};
  std::vector<std::string> was = lines_of(before), is = lines_of(attribute.mark.value);
  const auto [first_was, first_is] = std::mismatch(was.begin(), was.end(), is.begin(), is.end());
  was.erase(was.begin(), first_was);
  is.erase(is.begin(), first_is);
  while (!was.empty() && !is.empty() && was.back() == is.back()) {
    was.pop_back();
    is.pop_back();
  }
  change.before = list_of_lines(was);
  change.now = list_of_lines(is);
  return change;
}

bool has_same_tokens(const CheckpointInfo& info, const std::vector<DataAttribute>& data) {
  const auto before = info.extra.find(kTokensAttribute);
  return before != info.extra.end() && std::ranges::any_of(data, [&](const DataAttribute& one) {
           return one.mark.attribute == kTokensAttribute && one.mark.value == before->second;
         });
}

}  // namespace

std::vector<DataAttribute> describe_data(const tasks::TaskData& train,
                                         const tasks::TaskData* validation) {
  std::vector<DataAttribute> all;
  for (tasks::DataMark& mark : train.encoding()) {
    const OnChange on_change = mark.is_told ? OnChange::kResults : OnChange::kOtherRun;
    all.push_back({std::move(mark), on_change});
  }
  all.push_back({{"training_data", "data.train", train.contents()}, OnChange::kOtherRun});
  all.push_back(
      {{"validation_data", "data.validation", validation != nullptr ? validation->contents() : ""},
       OnChange::kResults});
  return all;
}

std::vector<ChangedSetting> changes_since(const Checkpoint& checkpoint, const Config& config,
                                          const std::vector<DataAttribute>& data) {
  const CheckpointInfo& info = checkpoint.info();
  std::vector<ChangedSetting> changes = changed_settings(info.config, checkpoint.path(), config);
  for (const DataAttribute& attribute : data) {
    // Imported weights do not know the tokenizer of any data.
    const bool is_known = info.extra.contains(kTokenizerAttribute);
    if (attribute.mark.attribute == kTokensAttribute && is_known) continue;
    const auto before = info.extra.find(attribute.mark.attribute);
    if (before == info.extra.end() || before->second == attribute.mark.value) continue;
    changes.push_back(changed_data(attribute, before->second));
    // Weights know what tokens stand for alone, not the file that says it.
    const bool is_tokenizer = attribute.mark.attribute == kTokenizerAttribute;
    if (is_tokenizer && has_same_tokens(info, data)) changes.back().on_change = OnChange::kResults;
  }
  return changes;
}

std::vector<ChangedSetting> changed_model(const Checkpoint& checkpoint, const Config& config) {
  std::vector<ChangedSetting> changes =
      changed_settings(checkpoint.info().config, checkpoint.path(), config);
  std::erase_if(changes,
                [](const ChangedSetting& change) { return !change.name.starts_with("model."); });
  return changes;
}

std::string list_of(const std::vector<ChangedSetting>& changes,
                    const std::vector<OnChange>& kinds) {
  std::string list;
  for (const ChangedSetting& change : changes) {
    if (std::find(kinds.begin(), kinds.end(), change.on_change) == kinds.end()) continue;
    list += fmt::format("{}{}", list.empty() ? "" : "; ", change.text());
  }
  return list;
}

std::string words_on_own_settings(const Config& config) {
  return fmt::format("--config {}/config.ini takes the settings that the run had",
                     config.run.folder);
}

void check_changes(const std::vector<ChangedSetting>& changes, const Checkpoint& checkpoint,
                   const Config& config) {
  const std::string others = list_of(changes, {OnChange::kOtherRun});
  if (others.empty() || config.run.accept_changes) return;
  const std::string rest = list_of(changes, {OnChange::kResults, OnChange::kRounding});
  throw ConfigError(fmt::format(
      "{} is of another run: {}{}; {}, --run.accept_changes true goes on from it all the same, "
      "--run.resume never starts anew",
      checkpoint.path(), others, rest.empty() ? "" : "; also changed: " + rest,
      words_on_own_settings(config)));
}

std::map<std::string, std::string> choices_before(const CheckpointInfo& info,
                                                  const std::string& origin) {
  std::map<std::string, std::string> choices = info.extra;
  if (choices.contains("batch_runs")) return choices;
  try {
    const Config config = config_from_ini(info.config, origin);
    const int runs = runs_of_batch(config);
    if (runs != 0 || config.grid[kDataAxes]) {
      choices["batch_runs"] = std::to_string(runs != 0 ? runs : *config.grid[kDataAxes]);
    }
  } catch (const ConfigError&) {  // it knew other keys, so its runs are not known
  }
  return choices;
}

}  // namespace trireme
