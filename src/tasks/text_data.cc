#include "tasks/text_data.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/tasks/texts.h"

namespace trireme::tasks {

std::shared_ptr<const TokenDataset> open_text(const DataRequest& request, std::int64_t context,
                                              Communicator& comm, bool begins_windows) {
  DatasetOptions options;
  options.data = request.paths;
  options.split = request.any_split ? "" : request.training ? "train" : "validation";
  options.context = context;
  options.seed = request.seed;
  options.order = request.training ? SampleOrder::kShuffled : SampleOrder::kSequential;
  options.begins_windows = begins_windows && !request.training;
  options.tokenizer = request.tokenizer;
  return TokenDataset::open(options, comm);
}

TextData::TextData(std::shared_ptr<const TokenDataset> data, std::optional<std::int32_t> vocabulary)
    : data_(std::move(data)), vocabulary_(vocabulary.value_or(data_->vocabulary())) {
  const Tokenizer& tokenizer = *data_->tokenizer();
  encoding_ = {{kTokenizerAttribute, "the tokenizer of data.train", tokenizer_checksum(tokenizer)}};
  std::ranges::move(marks_of_tokens(tokenizer), std::back_inserter(encoding_));
}

std::string TextData::description() const {
  return fmt::format("{} tokens, vocabulary {}", short_number(static_cast<double>(data_->tokens())),
                     vocabulary_);
}

void TextData::check_fits(const TaskData& other) const {
  const auto known = [](const char* name, const TaskData& data) {
    return KnownTokens{.name = name,
                       .vocabulary = *data.facts().vocabulary,
                       .tokenizer = data.encoding().front().value};
  };
  check_same_tokens(known("data.validation", other), known("data.train", *this),
                    "prepare both with one tokenizer");
}

void TextData::check_trained(const TrainedOn& model) const {
  check_tokenizer(model, *data_->tokenizer(), data_->shards().front().path, vocabulary_);
}

std::string TextData::remark_on(const TrainedOn& model) const {
  return words_on_ends(model, *data_->tokenizer(), data_->shards().front().path);
}

std::vector<std::string> TextData::paths() const {
  std::vector<std::string> all;
  for (const TokenShardInfo& shard : data_->shards()) all.push_back(shard.path);
  return all;
}

}  // namespace trireme::tasks
