#include "cli/model_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/dataset.h"
#include "trireme/setup/checkpoint_tokenizer.h"

namespace trireme::cli {
namespace {

constexpr const char* kWays =
    "--tokenizer PATH names a tokenizer.json, a SentencePiece model, a folder with one, or a shard";

// Whether a path is a shard, or a folder of them.
bool holds_shards(const std::string& path) {
  constexpr auto kStatus = ExitStatus::kData;
  if (!look_ahead(path, kStatus).is_folder()) {
    constexpr std::string_view kHdf5 = "\x89HDF";
    std::string beginning(kHdf5.size(), '\0');
    FileReader(path, kStatus).read(beginning.data(), beginning.size());
    return beginning == kHdf5;
  }
  const auto names = names_in(path, kStatus).value_or(std::vector<std::string>());
  return std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".h5"); });
}

ModelTokenizer tokenizer_of_shards(Communicator& comm, const std::vector<WeightedPath>& data) {
  const auto shards = TokenDataset::open(
      {.data = data, .split = "", .context = 1, .order = SampleOrder::kSequential}, comm);
  return {shards->tokenizer(), shards->shards().front().path};
}

}  // namespace

ModelTokenizer open_model_tokenizer(Communicator& comm, const InferenceModel& model,
                                    const std::string& path) {
  if (!path.empty()) {
    const bool is_shard =
        !comm.read_once([&] { return holds_shards(path) ? "shard" : ""; }).empty();
    if (is_shard) return tokenizer_of_shards(comm, {{path}});
    return {tokenizer_of_first(comm, [&] { return load_tokenizer(path); }), path};
  }
  const std::string& checkpoint = model.trained_on().origin;
  CheckpointAttributes attributes;
  for (const auto& mark : model.trained_on().marks) attributes.emplace(mark.attribute, mark.value);
  if (TokenizerPtr own = checkpoint_tokenizer(comm, checkpoint, attributes)) {
    return {own, checkpoint};
  }
  if (model.training().data.train.empty()) {
    throw ConfigError(fmt::format("{}: these weights came without a tokenizer that is read: {}",
                                  checkpoint, kWays));
  }
  try {
    return tokenizer_of_shards(comm, model.training().data.train);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}; {}", error.what(), kWays));
  }
}

}  // namespace trireme::cli
