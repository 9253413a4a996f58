#include "io/prepare/prepared_shards.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/files.h"

namespace trireme {
namespace {

bool take_digits(std::string_view& text) {
  const std::size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(size);
  return size > 0;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool is_train_shard(std::string_view name) {
  return name == kTrainShard || (take_word(name, "train-") && take_digits(name) &&
                                 take_word(name, "-of-") && take_digits(name) && name == ".h5");
}

}  // namespace

std::string train_shard_name(std::int64_t shard, std::int64_t shards) {
  return shards == 1 ? kTrainShard : fmt::format("train-{:05}-of-{:05}.h5", shard + 1, shards);
}

std::vector<std::string> train_shard_names(std::int64_t shards) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < shards; ++i) names.push_back(train_shard_name(i, shards));
  return names;
}

void name_shards(SetFolder& folder, std::int64_t shards, bool validation) {
  std::vector<std::string> made = train_shard_names(shards);
  if (validation) made.insert(made.begin(), kValidationShard);
  std::vector<std::string> gone;  // the last file of an earlier set first
  for (const std::string& name :
       names_in(folder.folder(), ExitStatus::kRunFolder).value_or(std::vector<std::string>())) {
    const bool ours = is_train_shard(name) || name == kValidationShard;
    if (ours && std::ranges::find(made, name) == made.end()) gone.insert(gone.begin(), name);
  }
  std::ranges::stable_partition(gone, is_train_shard);
  folder.give_names(made, gone);
}

}  // namespace trireme
