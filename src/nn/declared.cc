#include "trireme/nn/declared.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/comm/dry_rank.h"

namespace trireme::nn {
namespace {

// Some of the names, one of each kind: "embedding.weight", "blocks.*.norm1.weight".
std::string names_of_kinds(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> kinds;
  for (const std::string& name : names) {
    std::string kind;
    for (const char c : name) {
      const bool digit = c >= '0' && c <= '9';
      const bool of_number = digit && (kind.ends_with('.') || kind.ends_with('*'));
      if (!of_number) {
        kind += c;
      } else if (!kind.ends_with('*')) {
        kind += '*';
      }
    }
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  const std::size_t shown = std::min(kinds.size(), kMost);
  const std::size_t left = kinds.size() - shown;
  kinds.resize(shown);
  return fmt::format("{}{}", fmt::join(kinds, ", "),
                     left > 0 ? fmt::format(" and {} more such", left) : "");
}

}  // namespace

std::vector<std::vector<ParameterSpec>> declared_by_block(const ModelPlan& plan,
                                                          const NamePatterns& frozen) {
  DryRank alone({});
  const ProcessGrid grid(alone, GridShape{});
  BuildContext build{.grid = grid};
  std::vector<std::unique_ptr<Block>> blocks;  // the shared ones are those of the first
  std::vector<std::vector<ParameterSpec>> declared;
  for (const BlockPlan& block : plan.blocks) {
    ParameterSet& parameters = blocks.emplace_back(block.build(build))->parameters();
    parameters.freeze(frozen);
    std::vector<ParameterSpec>& of_block = declared.emplace_back();
    for (const auto& parameter : parameters.parameters()) of_block.push_back(parameter->spec());
  }
  return declared;
}

std::vector<ParameterSpec> declared_parameters(const ModelPlan& plan) {
  std::vector<ParameterSpec> all;
  for (std::vector<ParameterSpec>& of_block : declared_by_block(plan)) {
    all.insert(all.end(), of_block.begin(), of_block.end());
  }
  return all;
}

void refuse_patterns_without_match(std::string_view key, const NamePatterns& patterns,
                                   const std::vector<ParameterSpec>& parameters) {
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : parameters) names.push_back(parameter.name);
  const std::vector<std::string> nothing = patterns.without_match(names);
  if (nothing.empty()) return;
  throw ConfigError(fmt::format("{} {}: no parameter of the model has such a name; there are {}",
                                key, shown(nothing.front()), names_of_kinds(names)));
}

}  // namespace trireme::nn
