#include "cli/model_tokenizer.h"

#include <memory>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/dataset.h"

namespace trireme::cli {

ModelTokenizer open_model_tokenizer(Communicator& comm, const InferenceModel& model,
                                    const std::string& shard) {
  if (shard.empty() && model.training().data.train.empty()) {
    throw ConfigError(fmt::format(
        "{}: no training data is known of imported weights: --tokenizer SHARD names any "
        "shard of the model's tokenizer",
        model.trained_on().origin));
  }
  const std::vector<WeightedPath> data =
      shard.empty() ? model.training().data.train : std::vector<WeightedPath>{{shard}};
  const auto open = [&] {
    return TokenDataset::open(
        {.data = data, .split = "", .context = 1, .order = SampleOrder::kSequential}, comm);
  };
  std::shared_ptr<const TokenDataset> shards;
  try {
    shards = open();
  } catch (const DataError& error) {
    if (!shard.empty()) throw;
    throw DataError(fmt::format("{}; --tokenizer SHARD names any shard of the model's tokenizer",
                                error.what()));
  }
  return {shards->tokenizer(), shards->shards().front().path};
}

}  // namespace trireme::cli
